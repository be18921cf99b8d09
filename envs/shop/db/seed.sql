-- The shop's rows: generate_series and hashes, fixed times, no random() and no now(), so that every build is the same.
-- Loaded before the triggers exist (rules.sql), so that the audit log holds what is written here and nothing else.
set synchronize_seqscans = off;
set client_min_messages = warning;
set timezone = 'UTC';
set role shop_owner;
create schema seed;

create function seed.pick(label text, i bigint, n int) returns int language sql immutable
as $$ select (pg_catalog.hashtextextended(label || i, 20260331) & 2147483647)::int % n $$;

create function seed.choose(label text, i bigint, among text[]) returns text language sql immutable
as $$ select among[1 + (pg_catalog.hashtextextended(label || i, 20260331) & 2147483647)::int % pg_catalog.cardinality(among)] $$;

insert into shop.settings values
  ('business_date', '2026-03-31'), ('currency', 'EUR'), ('free_shipping_from', '75.00'), ('return_days', '30'),
  ('support_mail', 'desk@shop.example');

insert into shop.countries values
  ('AT', 'Austria', 0.200), ('BE', 'Belgium', 0.210), ('DE', 'Germany', 0.190), ('DK', 'Denmark', 0.250),
  ('ES', 'Spain', 0.210), ('FR', 'France', 0.200), ('IT', 'Italy', 0.220), ('NL', 'Netherlands', 0.210),
  ('PL', 'Poland', 0.230), ('PT', 'Portugal', 0.230);

insert into shop.warehouses (id, code, city, country) values
  (1, 'HAM', 'Hamburg', 'DE'), (2, 'LYS', 'Lyon', 'FR'), (3, 'RTM', 'Rotterdam', 'NL'), (4, 'MIL', 'Milan', 'IT');

insert into shop.staff (id, name, team)
select i, (array['Alva Lind', 'Bruno Haas', 'Carla Neri', 'Dario Pohl', 'Edda Wolf', 'Farid Aziz', 'Greta Moen', 'Hugo Brandt',
                 'Ines Duarte', 'Jonas Keller', 'Klara Vogt', 'Luca Ferri'])[i],
       (array['billing', 'delivery', 'products'])[1 + (i - 1) % 3]
from generate_series(1, 12) i;

insert into shop.categories (id, parent_id, name, position)
select i, null, (array['Kitchen', 'Garden', 'Office', 'Outdoor', 'Lighting', 'Toys'])[i], i from generate_series(1, 6) i
union all
select 6 + i, 1 + (i - 1) % 6,
       (array['Pans', 'Planters', 'Notebooks', 'Tents', 'Desk lamps', 'Puzzles', 'Knives', 'Hoses', 'Pens', 'Lanterns', 'Ceiling lamps',
              'Board games', 'Kettles', 'Seeds', 'Folders', 'Backpacks', 'Bulbs', 'Building blocks', 'Bowls', 'Tools', 'Chairs',
              'Bottles', 'Fairy lights', 'Plush animals'])[i],
       1 + (i - 1) / 6
from generate_series(1, 24) i;

-- 600 products; "status" leaves a tenth out of the catalogue, and some prices lie below cost (tasks correct them).
insert into shop.products (id, sku, name, category_id, price, cost, weight_g, status, attributes)
select i,
       upper(left(translate(c.name, ' ', ''), 3)) || '-' || (1000 + i),
       seed.choose('adj', i, array['Nordic', 'Classic', 'Compact', 'Sturdy', 'Light', 'Folding', 'Grand', 'Little', 'Urban', 'Alpine'])
         || ' ' || seed.choose('mat', i, array['Oak', 'Steel', 'Linen', 'Copper', 'Glass', 'Bamboo', 'Cotton', 'Slate', 'Cork', 'Enamel'])
         || ' ' || c.name || ' ' || i,
       k.id,
       4 + seed.pick('price', i, 180) + (array[0.49, 0.90, 0.95, 0.99])[1 + seed.pick('cents', i, 4)],
       case when seed.pick('loss', i, 25) = 0 then 5 + seed.pick('price', i, 180) + 0.75
            else round((4 + seed.pick('price', i, 180)) * (45 + seed.pick('cost', i, 30)) / 100.0, 2) end,
       50 + seed.pick('weight', i, 4000),
       case when seed.pick('status', i, 10) > 0 then 'active' when seed.pick('draft', i, 3) = 0 then 'draft' else 'discontinued' end,
       jsonb_build_object('colour', seed.choose('colour', i, array['red', 'green', 'blue', 'sand', 'black', 'white']),
                          'warranty_months', 12 * (1 + seed.pick('warranty', i, 3)))
from generate_series(1, 600) i
join lateral (select 7 + seed.pick('cat', i, 24) as id) k on true
join shop.categories c on c.id = k.id
order by i;

insert into shop.price_history (id, product_id, old_price, new_price, changed_at)
select row_number() over (order by p.id), p.id, round(p.price * 1.1, 2), p.price,
       timestamptz '2025-05-01 06:00+00' + seed.pick('pricechange', p.id, 300) * interval '1 day'
from shop.products p where seed.pick('changed', p.id, 3) = 0 order by p.id;

-- 3,000 customers; the last hundred are second records of earlier ones (tasks merge them).
create table seed.names as
select i, case when i > 2900 then 1 + seed.pick('dup', (i - 2900) / 2, 2700) else i end as base from generate_series(1, 3000) i;

insert into shop.customers (id, name, email, country, tier, status, credit, created_at)
select n.i, x.first || ' ' || x.last,
       case when n.i > 2900 and n.i % 2 = 1 then initcap(x.first) || '.' || initcap(x.last) || n.base || '@Mail.example'
            when n.i > 2900 then upper(x.first || '.' || x.last || n.base) || '@mail.example'
            else lower(x.first || '.' || x.last || n.base) || '@mail.example' end,
       seed.choose('country', n.base, array['DE', 'DE', 'DE', 'FR', 'FR', 'NL', 'IT', 'ES', 'AT', 'BE', 'PL', 'DK', 'PT']),
       case when n.i > 2900 then 'standard' else seed.choose('tier', n.i, array['standard', 'standard', 'standard', 'standard', 'silver', 'gold']) end,
       case when n.i <= 2900 and seed.pick('blocked', n.i, 60) = 0 then 'blocked' else 'active' end,
       case when seed.pick('credit', n.i, case when n.i > 2900 then 3 else 12 end) = 0 then 5 * (1 + seed.pick('creditsum', n.i, 8)) else 0 end,
       timestamptz '2024-01-02 09:00+00' + (n.i * 6) * interval '1 hour' + seed.pick('signup', n.i, 300) * interval '1 minute'
from seed.names n
join lateral (select
  seed.choose('first', n.base, array['Anna', 'Ben', 'Clara', 'David', 'Elena', 'Felix', 'Gina', 'Henri', 'Iris', 'Jakob', 'Katja', 'Leo',
    'Maria', 'Nils', 'Olga', 'Paul', 'Rosa', 'Simon', 'Tilda', 'Viktor', 'Wanda', 'Yann', 'Zoe', 'Marco']) as first,
  seed.choose('last', n.base, array['Adler', 'Becker', 'Conti', 'Dubois', 'Engel', 'Fischer', 'Garcia', 'Hansen', 'Ibanez', 'Jansen',
    'Kowalski', 'Lopez', 'Martin', 'Novak', 'Olsen', 'Peeters', 'Quint', 'Rossi', 'Silva', 'Thomas', 'Urban', 'Visser', 'Weber', 'Zimmer']) as last
) x on true
order by n.i;

insert into shop.addresses (id, customer_id, kind, street, postcode, city, country, is_default)
select a.i, c.id, case when a.i <= 3000 then 'shipping' else seed.choose('akind', a.i, array['shipping', 'billing']) end,
       seed.choose('street', s.k, array['Lindenweg', 'Hauptstrasse', 'Rue du Port', 'Via Roma', 'Kerkstraat', 'Calle Mayor', 'Ulica Polna', 'Parkvej'])
         || ' ' || (1 + seed.pick('house', s.k, 180)),
       lpad((10000 + seed.pick('post', s.k, 89999))::text, 5, '0'),
       seed.choose('city', s.k, array['Bremen', 'Kassel', 'Nantes', 'Dijon', 'Utrecht', 'Bologna', 'Murcia', 'Graz', 'Ghent', 'Lublin', 'Aarhus', 'Braga']),
       c.country, a.i <= 3000
from generate_series(1, 4500) a(i)
join lateral (select case when a.i <= 3000 then a.i else 1 + seed.pick('second', a.i, 2900) end as owner) o on true
left join seed.names m on m.i = a.i
join lateral (select coalesce(m.base, a.i) as k) s on true
join shop.customers c on c.id = o.owner
order by a.i;

insert into shop.coupons (code, description, percent_off, amount_off, min_total, valid_from, valid_to, max_uses, active)
select upper(seed.choose('word', i, array['spring', 'summer', 'autumn', 'winter', 'hello', 'thanks', 'garden', 'office'])) || (10 + i),
       'Campaign ' || i,
       case when i % 3 > 0 then 5 * (1 + seed.pick('percent', i, 5)) end,
       case when i % 3 = 0 then 5 * (1 + seed.pick('off', i, 4)) end,
       25 * seed.pick('min', i, 5),
       date '2025-04-01' + 6 * i, date '2025-04-01' + 6 * i + 45 + seed.pick('days', i, 120),
       case when i % 4 = 0 then 100 + 50 * seed.pick('uses', i, 6) end,
       seed.pick('off?', i, 8) > 0
from generate_series(1, 60) i order by i;

-- 8,000 orders over the year before the business date, the newest still on their way.
create table seed.lines as
select o.i as order_id, l.line, 1 + (seed.pick('product', o.i, 600) + l.line * (1 + seed.pick('stride', o.i, 149))) % 600 as product_id,
       1 + seed.pick('quantity', o.i * 4 + l.line, 3) as quantity
from generate_series(1, 8000) o(i)
join lateral generate_series(1, 1 + seed.pick('lines', o.i, 4)) l(line) on true
order by 1, 2;
alter table seed.lines add unit_price numeric(12, 2);
update seed.lines l set unit_price = round(p.price * (95 + seed.pick('rate', l.order_id, 6)) / 100, 2)
from shop.products p where p.id = l.product_id;

create table seed.orders as
select i,
       1 + seed.pick('customer', i, 3000) as customer_id,
       1 + seed.pick('warehouse', i, 4) as warehouse_id,
       timestamptz '2025-04-01 05:00+00' + i * interval '65 minutes 25 seconds' + seed.pick('minute', i, 60) * interval '1 minute' as placed_at,
       (case when i > 7500 then
          case when r < 200 then 'pending' when r < 420 then 'paid' when r < 560 then 'packed' when r < 780 then 'shipped'
               when r < 965 then 'delivered' else 'cancelled' end
        else
          case when r < 22 then 'pending' when r < 34 then 'paid' when r < 40 then 'packed' when r < 60 then 'shipped'
               when r < 115 then 'cancelled' when r < 145 then 'refunded' when r < 180 then 'partly_refunded' else 'delivered' end
        end)::shop.order_status as status,
       case when seed.pick('has coupon', i, 8) = 0 then 1 + seed.pick('coupon', i, 60) end as coupon,
       case when seed.pick('method', i, 10) < 5 then 'card' when seed.pick('method', i, 10) < 8 then 'transfer' else 'wallet' end as method,
       t.lines
from generate_series(1, 8000) i
join lateral (select seed.pick('order status', i, 1000) as r) s on true
join (select order_id, sum(quantity * unit_price) as lines from seed.lines group by order_id) t on t.order_id = i
order by i;

create table seed.codes as
select row_number() over (order by valid_from, code)::int as n, code, percent_off, amount_off from shop.coupons;

insert into shop.orders (id, reference, customer_id, shipping_address_id, warehouse_id, status, channel, is_gift, coupon_code,
                         discount, shipping_fee, placed_at, note)
select o.i, 'SO-' || (100000 + o.i), o.customer_id, o.customer_id, o.warehouse_id, o.status,
       seed.choose('channel', o.i, array['web', 'web', 'web', 'web', 'phone', 'partner']), seed.pick('gift', o.i, 9) = 0, k.code,
       case when k.code is null then 0 else least(o.lines, coalesce(k.amount_off, round(o.lines * k.percent_off / 100, 2))) end,
       case when o.lines >= 75 then 0 else 4.90 end, o.placed_at,
       case when seed.pick('note', o.i, 20) = 0 then 'Please ring twice' end
from seed.orders o left join seed.codes k on k.n = o.coupon
order by o.i;

insert into shop.order_items (order_id, line, product_id, quantity, unit_price, refunded_quantity)
select l.order_id, l.line, l.product_id, l.quantity, l.unit_price,
       case when o.status = 'refunded' or (o.status = 'partly_refunded' and l.line = 1) then l.quantity else 0 end
from seed.lines l join seed.orders o on o.i = l.order_id
order by l.order_id, l.line;

insert into shop.payments (id, order_id, method, status, amount, refunded, reference, created_at, settled_on)
select o.id, o.id, s.method,
       (case o.status when 'pending' then case when s.method = 'transfer' or seed.pick('failed', o.id, 3) > 0 then 'pending' else 'failed' end
                      when 'cancelled' then 'voided' when 'refunded' then 'refunded' else 'captured' end)::shop.payment_status,
       x.total,
       case o.status when 'refunded' then x.total
                     when 'partly_refunded' then least(x.total, l.quantity * l.unit_price)
                     else 0 end,
       'PAY-' || (7000000 + o.id * 13), o.placed_at + interval '3 minutes',
       case when o.status not in ('pending', 'cancelled') then (o.placed_at + interval '1 day')::date end
from shop.orders o
join seed.orders s on s.i = o.id
join seed.lines l on l.order_id = o.id and l.line = 1
join lateral (select s.lines - o.discount + o.shipping_fee as total) x on true
order by o.id;

insert into shop.refunds (id, payment_id, order_id, amount, reason, created_at)
select row_number() over (order by p.id), p.id, p.order_id, p.refunded,
       seed.choose('refund reason', p.id, array['damaged', 'wrong item', 'late', 'changed mind']), p.created_at + interval '9 days'
from shop.payments p where p.refunded > 0 order by p.id;

-- The bank statement: settled transfers are matched; of the open ones some have a line, some with another amount, some none.
insert into shop.bank_lines (id, booked_on, text, payment_reference, amount, matched_payment_id)
select row_number() over (order by x.booked_on, x.id), x.booked_on, x.text, x.reference, x.amount, x.matched
from (
  select p.id, p.settled_on as booked_on, 'Transfer from customer' as text, p.reference::text, p.amount::numeric, p.id as matched
  from shop.payments p where p.method = 'transfer' and p.status = 'captured' and p.order_id > 6500
  union all
  select p.id, least(date '2026-03-31', (p.created_at + (1 + seed.pick('booked', p.id, 4)) * interval '1 day')::date), 'Transfer from customer', p.reference,
         case when seed.pick('short', p.id, 5) = 0 then greatest(0.01, p.amount - 1 - seed.pick('by', p.id, 9)) else p.amount end, null
  from shop.payments p where p.method = 'transfer' and p.status = 'pending' and seed.pick('booked?', p.id, 4) > 0
  union all
  select 100000 + i, date '2026-01-01' + seed.pick('stray', i, 89), 'Bank fee', null, -(1 + seed.pick('fee', i, 9))::numeric, null
  from generate_series(1, 40) i
) x
order by x.booked_on, x.id;

insert into shop.invoices (number, order_id, issued_on, total)
select format('INV-%s-%s', x.year, lpad(row_number() over (partition by x.year order by x.id)::text, 6, '0')), x.id, x.day, x.total
from (select p.order_id as id, p.settled_on as day, extract(year from p.settled_on)::int as year, p.amount as total
      from shop.payments p where p.settled_on is not null) x
order by x.year, x.id;

insert into shop.invoice_counter (year, last_number)
select split_part(number, '-', 2)::int, max(split_part(number, '-', 3)::int) from shop.invoices group by 1 order by 1;

insert into shop.shipments (id, order_id, carrier, tracking, shipped_at, delivered_at)
select row_number() over (order by o.id), o.id, seed.choose('carrier', o.id, array['postal', 'parcelway', 'rapid']),
       'TR' || (500000 + o.id * 7), o.placed_at + interval '2 days',
       case when o.status <> 'shipped' then o.placed_at + (3 + seed.pick('transit', o.id, 5)) * interval '1 day' end
from shop.orders o where o.status in ('shipped', 'delivered', 'refunded', 'partly_refunded') order by o.id;

-- reserved is what orders that have not left yet need; every product is kept in every warehouse.
insert into shop.stock (product_id, warehouse_id, on_hand, reserved, reorder_at)
select p.id, w.id, coalesce(r.units, 0) + seed.pick('on hand', p.id * 4 + w.id, 160), coalesce(r.units, 0), 5 * (1 + seed.pick('reorder', p.id, 5))
from shop.products p
cross join shop.warehouses w
left join (select l.product_id, o.warehouse_id, sum(l.quantity) as units
           from seed.lines l join seed.orders o on o.i = l.order_id
           where o.status in ('pending', 'paid', 'packed') group by 1, 2) r on r.product_id = p.id and r.warehouse_id = w.id
order by p.id, w.id;

insert into shop.stock_movements (id, product_id, warehouse_id, quantity, reason, reference, moved_at)
select i, 1 + seed.pick('moved', i, 600), 1 + seed.pick('moved at', i, 4),
       case when i % 3 = 0 then 10 + seed.pick('receipt', i, 90) else -(1 + seed.pick('sale', i, 3)) end,
       case when i % 3 = 0 then 'receipt' else 'sale' end,
       case when i % 3 = 0 then 'delivery ' || (4000 + i / 3) else 'SO-' || (100000 + i) end,
       timestamptz '2025-04-01 06:00+00' + i * interval '1 hour'
from generate_series(1, 8000) i order by i;

insert into shop.carts (id, customer_id, status, coupon_code, updated_at)
select i, 1 + seed.pick('cart', i, 2900), seed.choose('cart status', i, array['open', 'open', 'open', 'ordered', 'abandoned']), null,
       timestamptz '2026-02-15 10:00+00' + i * interval '100 minutes'
from generate_series(1, 600) i order by i;

insert into shop.cart_items (cart_id, product_id, quantity)
select i, 1 + (seed.pick('cart product', i, 600) + n * 17) % 600, 1 + seed.pick('cart quantity', i * 4 + n, 2)
from generate_series(1, 600) i join lateral generate_series(1, 1 + seed.pick('cart lines', i, 3)) n on true
order by i, n;

insert into shop.tickets (id, customer_id, order_id, topic, priority, status, assignee_id, subject, resolution, opened_at)
select i, o.customer_id, o.id, t.topic, 1 + seed.pick('priority', i, 4), s.status::shop.ticket_status,
       case when s.status <> 'open' or seed.pick('assigned', i, 2) = 0
            then (array_position(array['billing', 'delivery', 'products'], t.topic) + 3 * seed.pick('assignee', i, 4)) end,
       case t.topic when 'billing' then 'Question about the invoice of ' when 'delivery' then 'Where is my order ' else 'Problem with an item of ' end
         || o.reference,
       case when s.status in ('resolved', 'closed') then seed.choose('resolution', i, array['answered', 'refunded', 'replaced', 'duplicate']) end,
       o.placed_at + interval '5 days'
from generate_series(1, 1500) i
join lateral (select 1 + (i * 5 + seed.pick('ticket order', i, 5)) as order_id) k on true
join shop.orders o on o.id = k.order_id
join lateral (select seed.choose('topic', i, array['billing', 'delivery', 'products']) as topic,
                     seed.pick('ticket status', i, 10) as r) t on true
join lateral (select case when t.r < 2 then 'open' when t.r < 3 then 'waiting' when t.r < 7 then 'resolved' else 'closed' end as status) s on true
order by i;

insert into shop.ticket_messages (id, ticket_id, author, body, sent_at)
select row_number() over (order by t.id, n), t.id, case n when 1 then 'customer' else 'desk' end,
       case n when 1 then t.subject || '? Please help, ' || c.name else 'Thank you for writing. We looked into it: ' || coalesce(t.resolution, 'still open') end,
       t.opened_at + (n - 1) * interval '7 hours'
from shop.tickets t join shop.customers c on c.id = t.customer_id
join lateral generate_series(1, case when t.status = 'open' then 1 else 2 end) n on true
order by t.id, n;

insert into shop.attachments (id, ticket_id, file_name, content)
select i, i * 90, 'photo-' || i || '.bin',
       lo_from_bytea(900000 + i, convert_to(repeat(md5('attachment ' || i), 64 + 16 * i), 'UTF8'))
from generate_series(1, 12) i order by i;

insert into shop.audit_log (id, at, actor, table_name, action, row_key, change)
select i, timestamptz '2025-06-01 07:00+00' + i * interval '105 minutes', seed.choose('actor', i, array['desk', 'nightly', 'import']),
       seed.choose('audited', i, array['orders', 'orders', 'payments', 'products', 'customers']), 'UPDATE', (1 + seed.pick('key', i, 3000))::text,
       jsonb_build_object('field', seed.choose('field', i, array['status', 'note', 'price', 'tier']), 'by', 'batch ' || (i / 50))
from generate_series(1, 4000) i order by i;

insert into shop.search_cache (term, product_ids)
select lower(c.name), array(select p.id from shop.products p where p.category_id = c.id order by p.id)
from shop.categories c where c.parent_id is not null order by c.id;

insert into work.notes (id, body) select i, 'Hand-over note ' || i from generate_series(1, 5) i;

-- Every identity and sequence stands where its data ends.
do $$
declare
  c record;
begin
  for c in
    select format('%I.%I', n.nspname, r.relname) as relation, a.attname
    from pg_catalog.pg_attribute a
    join pg_catalog.pg_class r on r.oid = a.attrelid
    join pg_catalog.pg_namespace n on n.oid = r.relnamespace
    where a.attidentity <> '' and n.nspname in ('shop', 'work')
    order by 1
  loop
    execute format('select setval(pg_get_serial_sequence(%L, %L), coalesce((select max(%I) from %s), 1))',
                   c.relation, c.attname, c.attname, c.relation);
  end loop;
  perform setval('shop.order_reference_seq', 108000);
  perform setval('shop.tracking_seq', 556007);
end
$$;

drop schema seed cascade;
reset role;
reset timezone;
reset synchronize_seqscans;
reset client_min_messages;
