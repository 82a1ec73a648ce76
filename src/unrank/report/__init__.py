"""Reports: tables, figures and one HTML page. Reads records, never a model."""
