-- After the rows: counters beyond them, and what the server may do.
set role portal_owner;
do $$
declare name text; last bigint;
begin
  foreach name in array array['sessions', 'lists', 'orders', 'requests', 'request_comments', 'documents', 'events'] loop
    execute format('select coalesce(max(id), 0) from portal.%I', name) into last;
    perform setval(pg_get_serial_sequence('portal.' || name, 'id'), greatest(last, 1), last > 0);
  end loop;
end
$$;

grant usage on schema portal to portal;
grant select on all tables in schema portal to portal;
grant insert, update, delete on portal.sessions, portal.lists, portal.list_items, portal.cart_lines, portal.orders,
  portal.order_lines, portal.requests, portal.request_comments, portal.documents to portal;
grant insert on portal.events to portal;
grant update (phone, room, place_id, language, order_mail, digest, newsletter, signature, password) on portal.people to portal;
grant update (stock) on portal.products to portal;
grant usage, select on all sequences in schema portal to portal;

