"""Alembic's entry point: runs on the connection, and in the transaction, that `trimtab.storage.migrate` hands over."""

from alembic import context

from trimtab.storage.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
