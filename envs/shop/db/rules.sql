-- What rests on the data: indexes, triggers, views, grants.
set role shop_owner;

create index customers_email_idx on shop.customers (lower(email));
create index addresses_customer_idx on shop.addresses (customer_id);
create index orders_customer_idx on shop.orders (customer_id, placed_at);
create index orders_on_the_way_idx on shop.orders (status) where status in ('pending', 'paid', 'packed');
create index order_items_product_idx on shop.order_items (product_id);
create index payments_order_idx on shop.payments (order_id);
create index refunds_order_idx on shop.refunds (order_id);
create index shipments_order_idx on shop.shipments (order_id);
create index stock_movements_product_idx on shop.stock_movements (product_id, warehouse_id);
create index tickets_customer_idx on shop.tickets (customer_id);
create index tickets_order_idx on shop.tickets (order_id);
create index ticket_messages_ticket_idx on shop.ticket_messages (ticket_id);
create index audit_log_row_idx on shop.audit_log (table_name, row_key);
create index products_attributes_idx on shop.products using gin (attributes);
create index cart_items_product_idx on shop.cart_items (product_id);
create statistics shop.orders_status_channel (dependencies) on status, channel from shop.orders;
alter table shop.orders alter column status set statistics 200;

create trigger audit after insert or update or delete on shop.orders for each row execute function shop.write_audit('id');
create trigger audit after insert or update or delete on shop.payments for each row execute function shop.write_audit('id');
create trigger audit after insert or update or delete on shop.refunds for each row execute function shop.write_audit('id');
create trigger audit after insert or update or delete on shop.customers for each row execute function shop.write_audit('id');
create trigger audit after insert or update or delete on shop.products for each row execute function shop.write_audit('sku');
create trigger audit after insert or update or delete on shop.coupons for each row execute function shop.write_audit('code');
create trigger price_history after update of price on shop.products
  for each row when (old.price is distinct from new.price) execute function shop.write_price_history();

create view shop.order_overview as
select o.id, o.reference, o.status, o.placed_at, c.name as customer, c.email, o.shipping_address_id, p.amount, p.refunded, p.status as payment
from shop.orders o join shop.customers c on c.id = o.customer_id left join shop.payments p on p.order_id = o.id;

create view shop.low_stock as
select p.sku, p.name, w.code as warehouse, s.on_hand, s.reserved, s.reorder_at
from shop.stock s join shop.products p on p.id = s.product_id join shop.warehouses w on w.id = s.warehouse_id
where s.on_hand - s.reserved < s.reorder_at and p.status = 'active';

create view reporting.open_tickets with (security_barrier) as
select topic, priority, count(*) as tickets from shop.tickets where status in ('open', 'waiting') group by topic, priority;

create view reporting.revenue_by_country as
select c.country, date_trunc('month', o.placed_at at time zone 'UTC')::date as month, sum(p.amount - p.refunded) as revenue
from shop.payments p join shop.orders o on o.id = p.order_id join shop.customers c on c.id = o.customer_id
where p.status = 'captured' group by 1, 2;

create materialized view reporting.sales as
select i.product_id, count(distinct o.id) as orders, sum(i.quantity) as units, sum(i.quantity * i.unit_price) as turnover
from shop.order_items i join shop.orders o on o.id = i.order_id
where o.status not in ('pending', 'cancelled') group by i.product_id order by i.product_id;
create unique index sales_product_idx on reporting.sales (product_id);
comment on materialized view reporting.sales is 'Refreshed by shop.refresh_sales()';

create function shop.refresh_sales() returns void
language sql security definer set search_path = shop, pg_catalog
as $$ refresh materialized view reporting.sales $$;

comment on column shop.stock.reserved is 'Units that orders which have not left yet still need; on_hand includes them';
comment on index shop.orders_on_the_way_idx is 'What the packing list reads';

-- The service desk reads everything and changes what its work is about. History, audit, counters and settings are not its to write.
revoke all on all functions in schema shop from public;
grant usage on schema shop, work, reporting to shop_staff;
grant select on all tables in schema shop, work, reporting to shop_staff;
grant insert, update, delete on
  shop.customers, shop.addresses, shop.products, shop.stock, shop.coupons, shop.carts, shop.cart_items, shop.orders, shop.order_items,
  shop.payments, shop.refunds, shop.bank_lines, shop.invoices, shop.shipments, shop.tickets, shop.ticket_messages to shop_staff;
grant insert on shop.stock_movements to shop_staff;
grant insert, update, delete on work.answers, work.notes to shop_staff;
grant usage on all sequences in schema shop, work to shop_staff;
grant execute on all functions in schema shop to shop_staff;
grant create on schema work to agent;
grant usage on schema reporting to reporting;
grant select on all tables in schema reporting to reporting;
alter default privileges for role shop_owner in schema reporting grant select on tables to reporting;

reset role;

grant select on large object 900001, 900002, 900003, 900004, 900005, 900006, 900007, 900008, 900009, 900010, 900011, 900012 to shop_staff;
