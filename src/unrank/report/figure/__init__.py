"""Figures: drawn once as shapes, then written as SVG for the page or as PNG."""
