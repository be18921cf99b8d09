create table public.stock (
    id serial primary key,
    product text not null unique,
    quantity integer not null check (quantity >= 0)
);
insert into public.stock (product, quantity) values ('tea', 5), ('coffee', 2);
grant select, insert, update, delete on public.stock to public;
