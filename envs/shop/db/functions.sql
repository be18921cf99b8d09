-- What the service desk calls. Functions check their own rules and fail with a message that says which.
set role shop_owner;

create function shop.business_date() returns date
language sql stable set search_path = shop, pg_catalog
as $$ select value::date from shop.settings where key = 'business_date' $$;

create function shop.order_total(p_order bigint) returns numeric
language sql stable set search_path = shop, pg_catalog
as $$
  select round(coalesce(sum(i.quantity * i.unit_price), 0) - o.discount + o.shipping_fee, 2)
  from shop.orders o left join shop.order_items i on i.order_id = o.id
  where o.id = p_order group by o.id
$$;
comment on function shop.order_total(bigint) is 'Lines minus discount plus shipping';

create function shop.cart_total(p_cart bigint) returns numeric
language sql stable set search_path = shop, pg_catalog
as $$
  select coalesce(sum(i.quantity * p.price), 0)
  from shop.cart_items i join shop.products p on p.id = i.product_id where i.cart_id = p_cart
$$;

create function shop.move_stock(p_product bigint, p_warehouse int, p_quantity int, p_reason text, p_reference text) returns void
language plpgsql set search_path = shop, pg_catalog
as $$
begin
  update shop.stock set on_hand = on_hand + p_quantity where product_id = p_product and warehouse_id = p_warehouse;
  if not found then
    raise exception 'product % is not kept in warehouse %', p_product, p_warehouse;
  end if;
  insert into shop.stock_movements (product_id, warehouse_id, quantity, reason, reference)
  values (p_product, p_warehouse, p_quantity, p_reason, p_reference);
end
$$;
comment on function shop.move_stock(bigint, int, int, text, text) is 'The only right way to change on_hand: it writes the movement too';

create function shop.restock(p_product bigint, p_warehouse int, p_quantity int, p_reference text) returns void
language sql set search_path = shop, pg_catalog
as $$ select shop.move_stock(p_product, p_warehouse, p_quantity, 'restock', p_reference) $$;

create function shop.transfer_stock(p_product bigint, p_from int, p_to int, p_quantity int, p_reference text) returns void
language plpgsql set search_path = shop, pg_catalog
as $$
begin
  if p_quantity <= 0 then
    raise exception 'a transfer moves at least one unit, not %', p_quantity;
  end if;
  perform shop.move_stock(p_product, p_from, -p_quantity, 'transfer', p_reference);
  perform shop.move_stock(p_product, p_to, p_quantity, 'transfer', p_reference);
end
$$;

create function shop.place_refund(p_order bigint, p_amount numeric, p_reason text) returns bigint
language plpgsql set search_path = shop, pg_catalog
as $$
declare
  v_payment shop.payments;
  v_refund bigint;
begin
  select * into v_payment from shop.payments
  where order_id = p_order and status in ('captured', 'refunded') order by id limit 1 for update;
  if not found then
    raise exception 'order % has no captured payment', p_order;
  end if;
  if v_payment.refunded + p_amount > v_payment.amount then
    raise exception 'only % of order % can still be refunded', v_payment.amount - v_payment.refunded, p_order;
  end if;
  update shop.payments
  set refunded = refunded + p_amount,
      status = case when refunded + p_amount = amount then 'refunded'::shop.payment_status else status end
  where id = v_payment.id;
  insert into shop.refunds (payment_id, order_id, amount, reason)
  values (v_payment.id, p_order, p_amount, p_reason) returning id into v_refund;
  update shop.orders
  set status = case when v_payment.refunded + p_amount = v_payment.amount
                    then 'refunded'::shop.order_status else 'partly_refunded'::shop.order_status end
  where id = p_order;
  return v_refund;
end
$$;
comment on function shop.place_refund(bigint, numeric, text) is
  'Pays back part or all of an order and sets its status; refunded_quantity of the lines is the caller''s to set';

create function shop.cancel_order(p_order bigint, p_note text) returns void
language plpgsql set search_path = shop, pg_catalog
as $$
declare
  v_status shop.order_status;
begin
  select status into v_status from shop.orders where id = p_order for update;
  if v_status is null then
    raise exception 'there is no order %', p_order;
  elsif v_status not in ('pending', 'paid', 'packed') then
    raise exception 'order % is % and cannot be cancelled', p_order, v_status;
  end if;
  update shop.orders set status = 'cancelled', note = p_note where id = p_order;
  update shop.payments set status = 'voided' where order_id = p_order and status = 'pending';
end
$$;
comment on function shop.cancel_order(bigint, text) is
  'Cancels and voids pending payments; captured money and reserved stock are the caller''s to give back';

create function shop.apply_coupon(p_cart bigint, p_code text) returns void
language plpgsql set search_path = shop, pg_catalog
as $$
declare
  v_coupon shop.coupons;
begin
  select * into v_coupon from shop.coupons where code = p_code;
  if not found or not v_coupon.active or shop.business_date() not between v_coupon.valid_from and v_coupon.valid_to then
    raise exception 'coupon % is not valid today', p_code;
  elsif shop.cart_total(p_cart) < v_coupon.min_total then
    raise exception 'cart % is below the minimum of %', p_cart, v_coupon.min_total;
  end if;
  update shop.carts set coupon_code = p_code where id = p_cart and status = 'open';
end
$$;

create function shop.next_invoice_number(p_year int) returns text
language plpgsql security definer set search_path = shop, pg_catalog
as $$
declare
  v_number int;
begin
  update shop.invoice_counter set last_number = last_number + 1 where year = p_year returning last_number into v_number;
  if not found then
    raise exception 'no invoice counter for %', p_year;
  end if;
  return format('INV-%s-%s', p_year, lpad(v_number::text, 6, '0'));
end
$$;

create function shop.write_audit() returns trigger
language plpgsql security definer set search_path = shop, pg_catalog
as $$
declare
  v_old jsonb := case when tg_op = 'INSERT' then null else to_jsonb(old) end;
  v_new jsonb := case when tg_op = 'DELETE' then null else to_jsonb(new) end;
begin
  insert into shop.audit_log (actor, table_name, action, row_key, change)
  values (session_user, tg_table_name, tg_op, coalesce(v_new, v_old) ->> tg_argv[0],
          jsonb_strip_nulls(jsonb_build_object('old', v_old, 'new', v_new)));
  return null;
end
$$;

create function shop.write_price_history() returns trigger
language plpgsql security definer set search_path = shop, pg_catalog
as $$
begin
  insert into shop.price_history (product_id, old_price, new_price) values (new.id, old.price, new.price);
  return null;
end
$$;

reset role;
