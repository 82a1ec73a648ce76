"""What it shows: tables, figures and one HTML page. Reads records, never a model."""
