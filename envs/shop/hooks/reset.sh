#!/bin/sh
# The reset that most authors write by hand. Runs inside the sandbox, with the credentials that its environment holds for the time
# of the hook; where it holds none but the agent's, as the shop's owner.
set -eu
if [ "${PGUSER:-agent}" = agent ]; then
  export PGUSER=shop_owner PGPASSWORD=shop-owner
fi
exec psql -X -q -v ON_ERROR_STOP=1 -f /opt/shop/hooks/reset.sql >/dev/null
