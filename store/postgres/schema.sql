-- The tables of leadonce on PostgreSQL. Times are integers: microseconds since 1970 in UTC, 0 for none; durations are
-- nanoseconds; truths are 0 or 1; JSON and bodies are bytea, kept byte for byte. A row with broken = 1 can't be read: no
-- sweep meets it again. What is looked up is compared bytewise (collate "C"): no upgrade of the system's locales can spoil
-- an index.

-- The clock of all leases, due times and ages, in microseconds. fixed is 0 but in tests, where it is the time.
create function {schema}.leadonce_clock(fixed bigint) returns bigint language sql volatile as
  'select case when fixed = 0 then cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) else fixed end';

create table {schema}.leadonce_meta (
  name  text collate "C" primary key,
  value text not null
);

-- What came in. Whoever deletes: the epochs of one key go together, since a new row starts at epoch 0. token names the call
-- that stored the row, so that a call whose answer was lost with the connection knows its own.
create table {schema}.leadonce_events (
  id            bigint generated always as identity primary key,
  source        text collate "C" not null,
  tenant        text collate "C" not null,
  bot           text collate "C" not null,
  update_id     text collate "C" not null,
  epoch         bigint not null,
  hash          text not null,
  fp_version    bigint not null,
  fp_sum        text not null,
  kind          text not null,
  ordering_key  text collate "C" not null,
  contact_key   text collate "C" not null,
  content_id    text collate "C" not null,
  content_rev   text not null,
  deal_key      text collate "C" not null,
  repeat_key    text collate "C" not null,
  lead_ref      text collate "C" not null,
  quarantine    text not null,
  state         text collate "C" not null,
  reason        text not null,
  attempts      bigint not null,
  accepted_at   bigint not null,
  due_at        bigint not null,
  ended_at      bigint not null,
  head_start_ns bigint not null,
  broken        smallint not null default 0,
  token         bigint not null,
  payload       bytea,
  enquiry       bytea
);

create unique index leadonce_events_key on {schema}.leadonce_events (update_id, bot, tenant, source, epoch);
create index leadonce_events_open on {schema}.leadonce_events (ordering_key, id) where ended_at = 0;
create index leadonce_events_due on {schema}.leadonce_events (tenant, due_at, id) where ended_at = 0;
create index leadonce_events_held on {schema}.leadonce_events (state, accepted_at, attempts)
  where state in ('parked', 'quarantined');
create index leadonce_events_ended on {schema}.leadonce_events (ended_at, state) where ended_at > 0;
-- What was handled before: an event enters these when it has ended, so that the door does not pay for them.
create index leadonce_events_content on {schema}.leadonce_events (content_id) where content_id <> '' and state = 'planned';
create index leadonce_events_repeat on {schema}.leadonce_events (repeat_key) where repeat_key <> '' and state = 'planned';
create index leadonce_events_reused on {schema}.leadonce_events (accepted_at) where epoch > 0;

-- The version of an ordering key: what a plan compares and sets; 0 is as good as no row. token names the plan that set it.
-- moved_to is the key that this one goes on under since they were merged, else empty.
create table {schema}.leadonce_keys (
  ordering_key text collate "C" primary key,
  version      bigint not null,
  token        bigint not null,
  moved_to     text collate "C" not null default ''
) with (fillfactor = 80);

create table {schema}.leadonce_contacts (
  contact_key text collate "C" primary key,
  tenant      text collate "C" not null,
  source      text collate "C" not null,
  user_id     text not null,
  crm_id      text collate "C" not null
);

-- stage, stage_version and stage_at are what the CRM told last: '' and 0 where it told nothing.
create table {schema}.leadonce_deals (
  seq           bigint generated always as identity primary key,
  id            text collate "C" not null unique,
  tenant        text collate "C" not null,
  ordering_key  text collate "C" not null,
  contact_key   text collate "C" not null,
  deal_key      text collate "C" not null,
  host_key      smallint not null,
  generation    bigint not null,
  state         text collate "C" not null,
  version       bigint not null,
  create_op     text collate "C" not null,
  crm_id        text collate "C" not null,
  opened_at     bigint not null,
  last_activity bigint not null,
  stage         text not null default '',
  stage_version bigint not null default 0,
  stage_at      bigint not null default 0,
  broken        smallint not null default 0
);

create unique index leadonce_deals_key on {schema}.leadonce_deals (ordering_key, deal_key, generation);
create unique index leadonce_deals_open on {schema}.leadonce_deals (ordering_key, deal_key) where state = 'open';
create index leadonce_deals_contact on {schema}.leadonce_deals (ordering_key, contact_key, opened_at)
  where contact_key <> '';
create index leadonce_deals_crm on {schema}.leadonce_deals (crm_id) where crm_id <> '';
create index leadonce_deals_broken on {schema}.leadonce_deals (id) where broken = 1;

create table {schema}.leadonce_operations (
  seq           bigint generated always as identity primary key,
  id            text collate "C" not null unique,
  tenant        text collate "C" not null,
  kind          text not null,
  ordering_key  text collate "C" not null,
  contact_key   text collate "C" not null,
  deal_id       text collate "C" not null,
  depends_on    text collate "C" not null,
  blocked       smallint not null,
  state         text collate "C" not null,
  doubt         smallint not null,
  version       bigint not null,
  revision      bigint not null,
  adapter       text not null,
  guarantee     text not null,
  window_ns     bigint not null,
  attempts      bigint not null,
  failures      bigint not null,
  first_sent_at bigint not null,
  last_sent_at  bigint not null,
  unreturned    smallint not null,
  due_at        bigint not null,
  owner         text not null,
  fence         bigint not null,
  lease_until   bigint not null,
  crm_id        text collate "C" not null,
  conflict_id   text collate "C" not null,
  reason        text not null,
  created_at    bigint not null,
  updated_at    bigint not null,
  ended_at      bigint not null,
  broken        smallint not null default 0,
  token         bigint not null default 0, -- names the call that began it last
  fields        bytea
);

create index leadonce_operations_pending on {schema}.leadonce_operations (tenant, due_at, seq)
  where state = 'pending' and blocked = 0 and broken = 0;
create index leadonce_operations_blocked on {schema}.leadonce_operations (depends_on)
  where state = 'pending' and blocked = 1 and broken = 0;
create index leadonce_operations_sending on {schema}.leadonce_operations (tenant, lease_until, seq)
  where state = 'sending' and broken = 0;
create index leadonce_operations_uncertain on {schema}.leadonce_operations (tenant, due_at, seq)
  where state = 'uncertain' and broken = 0;
create index leadonce_operations_reconcile on {schema}.leadonce_operations (tenant, due_at, seq)
  where state = 'needs_reconciliation' and broken = 0;
create index leadonce_operations_unfinished on {schema}.leadonce_operations (state, created_at, failures)
  where state in ('pending', 'sending', 'uncertain', 'needs_reconciliation', 'failed') and broken = 0;
create index leadonce_operations_canceled on {schema}.leadonce_operations (seq) where state = 'canceled';
create index leadonce_operations_ended on {schema}.leadonce_operations (ended_at, state) where ended_at > 0;
create index leadonce_operations_conflict on {schema}.leadonce_operations (seq, created_at, failures)
  where conflict_id <> '';
create index leadonce_operations_broken on {schema}.leadonce_operations (seq) where broken = 1;
create index leadonce_operations_deal on {schema}.leadonce_operations (deal_id) where deal_id <> '';
create index leadonce_operations_contact on {schema}.leadonce_operations (contact_key) where contact_key <> '';
create index leadonce_operations_crm on {schema}.leadonce_operations (crm_id) where crm_id <> '';

-- What was measured: with room in its page every update of a key touches no index (20,000 random ones: all, against 94 % in
-- full pages). Of the updates of operations and events none can do that, since states stand in their indexes. There the dead
-- rows must go early: with 200,000 of them the first look for what is due read 15,700 pages in 250 ms, after a vacuum 7
-- pages in 0.2 ms.
alter table {schema}.leadonce_events set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.01, autovacuum_analyze_threshold = 2000);
alter table {schema}.leadonce_operations set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.01, autovacuum_analyze_threshold = 2000);

-- An operation with what its deal and its contact know. The contact is a subquery, so that it is found by its key under any
-- plan.
create view {schema}.leadonce_operation_rows as
select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
  coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
from {schema}.leadonce_operations o left join {schema}.leadonce_deals d on d.id = o.deal_id;

-- Which event caused or changed which operation.
create table {schema}.leadonce_links (
  event_id     bigint not null,
  operation_id text collate "C" not null,
  primary key (event_id, operation_id)
);

create index leadonce_links_operation on {schema}.leadonce_links (operation_id, event_id);

-- The receiving accounts whose events are stored: operation ids are derived from them.
create table {schema}.leadonce_accounts (
  source text collate "C" not null,
  tenant text collate "C" not null,
  bot    text collate "C" not null,
  primary key (source, tenant, bot)
);

-- What deviated from the happy path, and what a person did.
create table {schema}.leadonce_trail (
  id           bigint generated always as identity primary key,
  at           bigint not null,
  operation_id text collate "C" not null,
  cause        text not null,
  from_state   text not null,
  to_state     text not null,
  attempt      bigint not null,
  started_at   bigint not null,
  took_ns      bigint not null,
  status       bigint not null,
  request_id   text not null,
  reason       text not null,
  crm_id       text collate "C" not null,
  person       text not null,
  why          text not null,
  seen         bigint not null
);

create index leadonce_trail_operation on {schema}.leadonce_trail (operation_id, id);
