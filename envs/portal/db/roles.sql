-- Roles of the portal. The server's password is a SCRAM verifier with a fixed salt, so that two builds hold the same bytes.
-- (portal: "portal-server"; this world is a copy that is thrown away.) The agent may connect and read nothing: it works in the browser.
do $$
begin
  if not exists (select from pg_catalog.pg_roles where rolname = 'agent') then
    create role agent;
  end if;
end
$$;

alter role agent login nosuperuser nocreatedb nocreaterole connection limit 5;
create role portal_owner nologin;
create role portal login connection limit 20
  password 'SCRAM-SHA-256$4096:Ec62TqmVO0kqsEJ5kohAAQ==$CEzsrYxnAoine91WBdSQhv2xvZ5B9W0XiUR/7qtkclQ=:vm4vmv4cVNvrMNp4gsV1QTOWTh+KnDpOaepmRQ7xof0=';

comment on role portal_owner is 'Owns every object of the portal';
comment on role portal is 'What the web server logs in as';
