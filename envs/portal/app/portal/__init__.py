"""The portal: a web application over PostgreSQL in the standard library, so that it runs wherever there is a Python 3.11."""
