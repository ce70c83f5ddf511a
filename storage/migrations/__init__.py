"""Alembic's folder, shipped with the package."""
