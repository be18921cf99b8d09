-- The portal's rows: generate_series and hashes, fixed times, no random() and no now(), so that every build is the same.
set synchronize_seqscans = off;
set timezone = 'UTC';
set role portal_owner;
create schema seed;

create function seed.pick(label text, i bigint, n int) returns int language sql immutable
as $$ select (pg_catalog.hashtextextended(label || i, 20261129) & 2147483647)::int % n $$;

create function seed.choose(label text, i bigint, among text[]) returns text language sql immutable
as $$ select among[1 + (pg_catalog.hashtextextended(label || i, 20261129) & 2147483647)::int % pg_catalog.cardinality(among)] $$;

insert into portal.departments values
  (1, 'ENG', 'Engineering', 'CC-4100', 9000), (2, 'LAB', 'Laboratory', 'CC-4200', 12000), (3, 'FAC', 'Facilities', 'CC-4300', 8000),
  (4, 'FIN', 'Finance', 'CC-4400', 3000), (5, 'HR', 'People', 'CC-4500', 4000), (6, 'LOG', 'Logistics', 'CC-4600', 10000),
  (7, 'SAL', 'Sales', 'CC-4700', 5000), (8, 'IT', 'Information Technology', 'CC-4800', 15000);

insert into portal.places values
  (1, 'A1', 'Main reception', 'Harbour Street 4', 'Lindhaven'), (2, 'A2', 'Post room, second floor', 'Harbour Street 4', 'Lindhaven'),
  (3, 'B0', 'Laboratory gate', 'Quay Road 11', 'Lindhaven'), (4, 'B3', 'Clean room lobby', 'Quay Road 11', 'Lindhaven'),
  (5, 'W1', 'North warehouse', 'Mill Lane 90', 'Osterby'), (6, 'W2', 'South warehouse', 'Station Road 2', 'Osterby'),
  (7, 'S1', 'City showroom', 'Market Square 7', 'Lindhaven'), (8, 'D1', 'Data centre desk', 'Tower Road 30', 'Vikstad'),
  (9, 'T1', 'Training centre', 'Park Avenue 15', 'Vikstad');

insert into portal.people (id, login, name, email, department_id, role, phone, room, place_id, language, order_mail, digest, newsletter, signature)
select i, lower(x.first || '.' || x.last), x.first || ' ' || x.last, lower(x.first || '.' || x.last) || '@lindworks.example',
       1 + (i - 1) % 8, case when i <= 8 then 'manager' else 'staff' end,
       '+46 8 555 ' || to_char(1000 + seed.pick('phone', i, 9000), 'FM0000'),
       seed.choose('wing', i, array['A', 'B', 'C', 'D']) || (1 + seed.pick('floor', i, 4)) || '.' || to_char(1 + seed.pick('room', i, 38), 'FM00'),
       1 + seed.pick('place', i, 9), seed.choose('language', i, array['en', 'en', 'en', 'de', 'fr', 'sv']),
       seed.choose('mail', i, array['all', 'shipped', 'none']), seed.choose('digest', i, array['daily', 'weekly', 'weekly', 'never']),
       seed.pick('newsletter', i, 3) = 0, ''
from generate_series(1, 48) i
cross join lateral (select
  (array['Ada', 'Bertil', 'Clara', 'David', 'Elsa', 'Fredrik', 'Greta', 'Henrik', 'Ida', 'Johan', 'Karin', 'Lars', 'Maja', 'Nils', 'Olga',
         'Per', 'Quirin', 'Rosa', 'Sven', 'Tove', 'Ulla', 'Viktor', 'Wilma', 'Xenia', 'Yngve', 'Zara', 'Anton', 'Britta', 'Casper',
         'Dagny', 'Emil', 'Freja', 'Gustav', 'Hedda', 'Ivar', 'Jonna', 'Kasper', 'Linnea', 'Magnus', 'Nora', 'Oskar', 'Petra', 'Rasmus',
         'Signe', 'Torsten', 'Ursula', 'Valter', 'Ylva'])[i] as first,
  (array['Ahlgren', 'Bergstad', 'Cederholm', 'Dalin', 'Ekman', 'Falk', 'Granlund', 'Holmberg', 'Isaksen', 'Jansson', 'Kjellin',
         'Lindqvist', 'Molin', 'Nordahl', 'Oberg', 'Palmer', 'Quist', 'Roos', 'Sandell', 'Thorell', 'Uggla', 'Vinter', 'Wallin',
         'Ystrand', 'Zetter', 'Almqvist', 'Boman', 'Carling', 'Dahlman', 'Engstrom', 'Forsell', 'Gylling', 'Hedin', 'Ingvar',
         'Jarl', 'Kronberg', 'Lilja', 'Malmgren', 'Nyberg', 'Osterman', 'Pihl', 'Rydberg', 'Stahl', 'Tegner', 'Unger', 'Vester',
         'Wiklund', 'Zander'])[i] as last) x
order by i;

-- Earlier devices of everybody; nobody knows the tokens.
insert into portal.sessions (id, token_hash, person_id, csrf, device, created_at, seen_at)
select row_number() over (order by p, d), encode(sha256(convert_to('device/' || p || '/' || d, 'UTF8')), 'hex'), p,
       md5('csrf/' || p || '/' || d), (array['Firefox on Linux', 'Safari on iPhone', 'Chrome on Windows', 'Edge on Windows', 'Chrome on Android'])[1 + seed.pick('device', p * 10 + d, 5)],
       t.at, t.at + seed.pick('seen', p * 10 + d, 40) * interval '1 hour'
from generate_series(1, 48) p cross join generate_series(1, 4) d
cross join lateral (select timestamptz '2026-09-01 07:00+00' + seed.pick('session', p * 10 + d, 110000) * interval '1 minute' as at) t
where d <= 1 + seed.pick('devices', p, 4)
order by p, d;

insert into portal.categories values
  (1, 'paper', 'Paper & notebooks'), (2, 'writing', 'Pens & markers'), (3, 'desk', 'Desk accessories'), (4, 'chairs', 'Seating'),
  (5, 'lighting', 'Lighting'), (6, 'computing', 'Computing'), (7, 'cables', 'Cables & power'), (8, 'safety', 'Safety'),
  (9, 'cleaning', 'Cleaning'), (10, 'kitchen', 'Kitchen'), (11, 'packing', 'Packing'), (12, 'lab', 'Laboratory supplies');

create table seed.articles as
select c.id as category_id, a.article, a.place from (values
  (1, array['Copy paper A4', 'Spiral notebook', 'Sticky notes', 'Envelopes C5', 'Flip chart pad', 'Index cards', 'Graph pad', 'Wall planner', 'Label sheets', 'Visitor book']),
  (2, array['Ballpoint pen', 'Gel pen', 'Whiteboard marker', 'Highlighter', 'Mechanical pencil', 'Permanent marker', 'Fineliner', 'Paint marker', 'Eraser set', 'Correction tape']),
  (3, array['Stapler', 'Hole punch', 'Desk organiser', 'Letter tray', 'Monitor stand', 'Foot rest', 'Paper shredder', 'Desk fan', 'Document holder', 'Tape dispenser']),
  (4, array['Office chair', 'Drafting stool', 'Visitor chair', 'Saddle stool', 'Standing mat', 'Conference chair', 'Bench', 'Lounge chair', 'Stacking chair', 'Seat cushion']),
  (5, array['Desk lamp', 'Floor lamp', 'Clip lamp', 'Light strip', 'Magnifier lamp', 'Emergency light', 'Work light', 'Ceiling panel', 'Head torch', 'Light bulb E27']),
  (6, array['Keyboard', 'Wireless mouse', 'Webcam', 'Headset', 'Docking station', 'USB stick', 'External drive', 'Monitor 27 inch', 'Laptop sleeve', 'Card reader']),
  (7, array['HDMI cable', 'USB-C cable', 'Network cable', 'Extension lead', 'Power strip', 'Travel adapter', 'Cable ties', 'Cable tray', 'Wall charger', 'Battery pack']),
  (8, array['Safety glasses', 'Nitrile gloves', 'Ear defenders', 'Hard hat', 'First aid kit', 'High-vis vest', 'Fire blanket', 'Dust mask', 'Safety shoes', 'Eye wash']),
  (9, array['Surface cleaner', 'Paper towels', 'Bin liners', 'Hand soap', 'Floor mop', 'Screen wipes', 'Dust cloths', 'Glass cleaner', 'Brush set', 'Hand sanitiser']),
  (10, array['Ground coffee', 'Tea assortment', 'Water carafe', 'Mug set', 'Kettle', 'Sugar sticks', 'Oat drink', 'Biscuit tin', 'Coffee filters', 'Fruit bowl']),
  (11, array['Shipping carton', 'Bubble wrap', 'Packing tape', 'Pallet wrap', 'Padded mailer', 'Strapping kit', 'Corner guards', 'Tape gun', 'Void fill', 'Pallet labels']),
  (12, array['Pipette tips', 'Petri dishes', 'Sample vials', 'Lab coat', 'Weighing boats', 'Filter paper', 'Graduated cylinder', 'Spatula set', 'Parafilm roll', 'Stirring bars'])
) c (id, articles) cross join lateral unnest(c.articles) with ordinality a (article, place);

-- 480 products: every article in four variants.
insert into portal.products (id, sku, name, article, variant, brand, category_id, price, pack, stock, rating, lead_days, description)
select i, upper(left(replace(a.article, ' ', ''), 3)) || '-' || (2000 + i), a.article || ' ' || v.variant, a.article, v.variant,
       seed.choose('brand', i, array['Oakline', 'Norda', 'Brightway', 'Kvist', 'Solidum', 'Fjell', 'Paperhaus', 'Meridian']),
       a.category_id,
       round((3 + seed.pick('base', (i - 1) / 4, 90)) * v.factor + (array[0.00, 0.25, 0.50, 0.95])[1 + seed.pick('cents', i, 4)], 2),
       seed.choose('pack', i, array['1 piece', '1 piece', 'pack of 5', 'pack of 10', 'box of 25']),
       case when seed.pick('out', i, 6) = 0 then 0 else 3 + seed.pick('stock', i, 240) end,
       (25 + seed.pick('rating', i, 26)) / 10.0, 1 + seed.pick('lead', i, 21),
       seed.choose('line', i, array['A dependable choice for every day.', 'Chosen by most departments.', 'Built to last, easy to repair.',
                                    'Light, quiet and simple to use.', 'Made for heavy use.'])
         || ' ' || seed.choose('more', i, array['Two years of warranty.', 'Spare parts are kept for five years.', 'Delivered without plastic.',
                                                'Tested in our own workshop.', 'Stored in Osterby.'])
from (select row_number() over (order by category_id, place) as n, * from seed.articles) a
cross join lateral (values (1, 'Basic', 1.0), (2, 'Plus', 1.4), (3, 'Pro', 2.2), (4, 'Eco', 1.2)) v (place, variant, factor)
cross join lateral (select (a.n - 1) * 4 + v.place as i) k
order by i;

insert into portal.lists (id, person_id, name, shared, created_at)
select row_number() over (order by p, k), p, (array['Monthly order', 'New desk', 'Workshop', 'Meeting room'])[k], seed.pick('shared', p * 4 + k, 3) = 0,
       timestamptz '2026-02-02 09:00+00' + seed.pick('list', p * 4 + k, 250) * interval '1 day'
from generate_series(1, 48) p cross join generate_series(1, 4) k
where seed.pick('haslist', p * 4 + k, 2) = 0
order by p, k;

insert into portal.list_items (list_id, product_id, note, added_at)
select l.id, x.product_id, seed.choose('listnote', l.id * 100 + x.product_id, array['', '', '', 'ask first', 'for the new room', 'running low']), l.created_at + x.n * interval '1 minute'
from portal.lists l
cross join lateral (select 1 + seed.pick('li', l.id * 100 + n, 480) as product_id, min(n) as n
                    from generate_series(1, 5 + seed.pick('items', l.id, 7)) n group by 1) x
order by l.id, x.n;

insert into portal.cart_lines (person_id, product_id, quantity, later, added_at)
select p, x.product_id, 1 + seed.pick('cartq', p * 100 + x.n, 9), seed.pick('later', p * 100 + x.n, 7) = 0,
       timestamptz '2026-11-20 08:00+00' + (p * 37 + x.n) * interval '1 minute'
from generate_series(1, 48) p
cross join lateral (select 1 + seed.pick('cart', p * 100 + n, 480) as product_id, min(n) as n
                    from generate_series(1, 4 + seed.pick('carts', p, 6)) n group by 1) x
where p % 3 <> 1
order by p, x.n;

-- 960 orders, in the order of time.
create table seed.order_times as
select row_number() over (order by at, k) as id, at, k from (
  select k, timestamptz '2025-01-07 07:30+00' + seed.pick('orderday', k, 675) * interval '1 day' + seed.pick('orderminute', k, 560) * interval '1 minute' as at
  from generate_series(1, 960) k) t;

insert into portal.orders (id, number, person_id, place_id, cost_centre, reference, note, status, total, placed_at)
select t.id, portal.next_number('ORD', t.id), p.id, case when seed.pick('own', t.k, 4) = 0 then 1 + seed.pick('oplace', t.k, 9) else p.place_id end, d.cost_centre,
       case when seed.pick('ref', t.k, 3) = 0 then 'REF ' || (100 + seed.pick('refno', t.k, 900)) else '' end,
       seed.choose('onote', t.k, array['', '', '', '', 'Please leave at the desk.', 'Call before delivery.']),
       case when seed.pick('cancel', t.k, 14) = 0 then 'cancelled' when t.id > 930 then 'placed' when t.id > 900 then 'packed'
            when t.id > 850 then 'shipped' else 'delivered' end,
       0, t.at
from seed.order_times t
cross join lateral (select 1 + seed.pick('buyer', t.k, 48) as id) b
join portal.people p on p.id = b.id join portal.departments d on d.id = p.department_id
order by t.id;

insert into portal.order_lines (order_id, position, product_id, quantity, price)
select o.id, row_number() over (partition by o.id order by x.n), x.product_id, 1 + seed.pick('lineq', o.id * 10 + x.n, 8),
       p.price
from portal.orders o
cross join lateral (select 1 + seed.pick('line', o.id * 10 + n, 480) as product_id, min(n) as n
                    from generate_series(1, 1 + seed.pick('lines', o.id, 5)) n group by 1) x
join portal.products p on p.id = x.product_id
order by o.id, x.n;

update portal.orders o set total = (select sum(quantity * price) from portal.order_lines l where l.order_id = o.id);

-- 320 requests; the last eighty or so wait for a decision.
create table seed.request_times as
select row_number() over (order by at, k) as id, at, k from (
  select k, timestamptz '2025-03-03 08:00+00' + seed.pick('reqday', k, 620) * interval '1 day' + seed.pick('reqminute', k, 560) * interval '1 minute' as at
  from generate_series(1, 320) k) t;

insert into portal.requests (id, number, person_id, department_id, kind, title, body, amount, needed_by, status, decided_by, decided_at, decision_note, created_at)
select t.id, portal.next_number('REQ', t.id), p.id, p.department_id, s.kind, s.title || ' ' || (t.id % 97 + 3), s.body,
       case s.kind when 'access' then 0 else 40 + 5 * seed.pick('amount', t.k, 380) end, (t.at + (20 + seed.pick('need', t.k, 60)) * interval '1 day')::date,
       z.status, case when z.status in ('approved', 'declined') then p.department_id end, case when z.status in ('approved', 'declined') then t.at + interval '3 days' end,
       case z.status when 'approved' then seed.choose('yes', t.k, array['', 'Fine.', 'Please order through the catalogue.'])
                     when 'declined' then seed.choose('no', t.k, array['Over budget.', 'Please ask again next quarter.', 'Share one with your neighbours.']) else '' end,
       t.at
from seed.request_times t
cross join lateral (select 9 + seed.pick('asker', t.k, 40) as id) b join portal.people p on p.id = b.id
cross join lateral (select (array['equipment', 'equipment', 'training', 'travel', 'access'])[1 + seed.pick('kind', t.k, 5)] as kind) q
cross join lateral (select q.kind, case q.kind
    when 'equipment' then seed.choose('eq', t.k, array['Second monitor for desk', 'Standing desk for room', 'Barcode scanner for line', 'Label printer for bay', 'Height-adjustable stool for bench'])
    when 'training' then seed.choose('tr', t.k, array['First aid course, group', 'Forklift licence, class', 'Language course, level', 'Spreadsheet workshop, part'])
    when 'travel' then seed.choose('ta', t.k, array['Visit to supplier', 'Trade fair, hall', 'Site inspection, plant', 'Customer workshop, site'])
    else seed.choose('ac', t.k, array['Key card for door', 'Shared mailbox', 'Archive access, shelf', 'Meter readings, building']) end as title,
    seed.choose('body', t.k, array['The old one cannot be repaired.', 'We need it for the new project.', 'Two colleagues share one at present.', 'It was agreed at the team meeting.']) as body) s
cross join lateral (select case when t.id > 240 then (array['open', 'open', 'open', 'open', 'withdrawn'])[1 + seed.pick('late', t.k, 5)]
                                else (array['approved', 'approved', 'declined', 'withdrawn'])[1 + seed.pick('early', t.k, 4)] end as status) z
order by t.id;

insert into portal.request_comments (id, request_id, person_id, body, created_at)
select row_number() over (order by r.id, n), r.id, case n when 1 then r.department_id else r.person_id end,
       case n when 1 then seed.choose('ask', r.id, array['Is there a cheaper one?', 'When do you need it at the latest?', 'Who else would use it?'])
              else seed.choose('answer', r.id, array['I looked, this is the cheapest.', 'By the end of the month.', 'The whole team.']) end,
       r.created_at + n * interval '5 hours'
from portal.requests r cross join generate_series(1, 2) n
where n <= seed.pick('comments', r.id, 3)
order by r.id, n;

create table seed.sections (place int, section text, titles text[]);
insert into seed.sections values
  (1, 'Safety', array['Fire drill', 'First aid points', 'Chemical spills', 'Lone working', 'Ladders and steps']),
  (2, 'Travel', array['Booking a train', 'Daily allowance', 'Visiting a supplier', 'Lost luggage']),
  (3, 'Workplace', array['Setting up a desk', 'Screen and eyes', 'Quiet rooms', 'Visitors', 'Lost property']),
  (4, 'Purchasing', array['Who may order', 'Cost centres', 'Returning goods', 'Choosing a greener product', 'Invoices']),
  (5, 'Computing', array['New laptop', 'Remote access', 'Printing', 'Locked account', 'Shared drives']);

insert into portal.guides (id, slug, section, title, body, revised)
select i, lower(replace(t.title, ' ', '-')), s.section, t.title,
       case t.title
         when 'Screen and eyes' then 'Tired eyes want less glare and larger letters. We recommend for the portal: theme Dark, text size Large, row spacing Relaxed. Look into the distance every twenty minutes.'
         when 'Setting up a desk' then 'On a small screen, see more at once: theme Light, text size Small, row spacing Compact. The upper edge of the screen is at the height of your eyes.'
         when 'Remote access' then 'On a slow line, load less: 12 products a page and no start page but Orders. Switch on the save-data option of the display settings.'
         else seed.choose('g1', i, array['Read this before you begin.', 'This guide was written with the works council.', 'Questions go to the reception.'])
           || ' ' || seed.choose('g2', i, array['Take two copies, and give one to the desk.', 'Call extension 55 first.', 'Use the green cabinet on each floor.', 'Tell your manager the same day.'])
           || ' ' || seed.choose('g3', i, array['A form is not needed.', 'The form lies on the shared drive.', 'Keep the receipt.', 'It takes five minutes.'])
       end,
       date '2024-03-01' + seed.pick('revised', i, 950)
from seed.sections s cross join lateral unnest(s.titles) with ordinality t (title, n)
cross join lateral (select (s.place - 1) * 5 + t.n as i) k
order by i;

insert into portal.events (id, at, person_id, what, detail)
select row_number() over (order by placed_at, id), placed_at, person_id, 'order placed', number from portal.orders where id > 700 order by placed_at, id;

drop schema seed cascade;
