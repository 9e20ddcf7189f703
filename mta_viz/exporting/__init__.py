"""Figures and results -> bytes a user can keep: pictures, pages, tables, and safe file names."""
