#!/bin/sh
# The reset that most authors write by hand. Runs inside the sandbox; the owner's credentials are in its environment.
set -eu
export PGUSER="${SHOP_OWNER:-shop_owner}" PGPASSWORD="${SHOP_OWNER_PASSWORD:-shop-owner}"
exec psql -X -q -v ON_ERROR_STOP=1 -f /opt/shop/hooks/reset.sql >/dev/null
