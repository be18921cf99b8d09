-- Roles of the shop. Passwords are SCRAM verifiers with fixed salts, so that two builds hold the same bytes.
-- (agent: "agent", shop_owner: "shop-owner", reporting: "reporting"; this world is a copy that is thrown away.)
do $$
begin
  if not exists (select from pg_catalog.pg_roles where rolname = 'agent') then
    create role agent;
  end if;
end
$$;

alter role agent login nosuperuser nocreatedb nocreaterole connection limit 20
  password 'SCRAM-SHA-256$4096:CWxRJGo9LvZyugwhli2NUA==$3kyCyQEdflxOZH8XUtVO82+d1wBuJFHmadqZZXXZDAA=:V3JYL1p6VjStJtt2rTVuYRE+19elG80MLv6vVpu+N6A=';
create role shop_owner login createrole connection limit 20
  password 'SCRAM-SHA-256$4096:DusVr9Vt2/KuHoFs7MOVqg==$EARLZJ2uGhyk0v8oEtMc9Buk2DoijB39JYgyrbWJNgo=:WxX6BCfvXqOiOjSKs2pEX8Us4XRi/FDdQ/CM0xO7YHg=';
create role reporting login connection limit 5
  password 'SCRAM-SHA-256$4096:tVsbU2X4drYbHcscDjoJdg==$t4KYRoIZvFs1wyLCaxVhGRLkvdP3+S9Hnmx0yQfyI6o=:8FIRTOH/3EIT6z/mHVC2MoXCU/8NPkGZ7J5o+HhaijQ=';
create role shop_staff nologin;

comment on role shop_owner is 'Owns every object of the shop';
comment on role shop_staff is 'What a person at the service desk may do';
comment on role reporting is 'Reads the reporting schema and nothing else';

grant shop_staff to agent;
alter role reporting set statement_timeout = '30s';
alter role agent set search_path = shop, work, reporting;
alter role shop_owner set search_path = shop, work, reporting;

do $$
begin
  execute format('alter database %I owner to shop_owner', current_database());
end
$$;
