-- The tables of leadonce on SQLite. Times are integers: microseconds since 1970 in UTC, 0 for none; durations are
-- nanoseconds; truths are 0 or 1; JSON and bodies are blobs. A row with broken = 1 can't be read: no sweep meets it again.

create table leadonce_meta (
  name  text primary key,
  value text not null
) strict, without rowid;

-- What came in. Whoever deletes: the epochs of one key go together, since a new row starts at epoch 0, and the row with the
-- highest id stays, since the next id is one more. (autoincrement would make every repeated delivery a write.)
create table leadonce_events (
  id            integer primary key,
  source        text not null,
  tenant        text not null,
  bot           text not null,
  update_id     text not null,
  epoch         integer not null,
  hash          text not null,
  fp_version    integer not null,
  fp_sum        text not null,
  kind          text not null,
  ordering_key  text not null,
  contact_key   text not null,
  content_id    text not null,
  content_rev   text not null,
  deal_key      text not null,
  repeat_key    text not null,
  lead_ref      text not null,
  quarantine    text not null,
  state         text not null,
  reason        text not null,
  attempts      integer not null,
  accepted_at   integer not null,
  due_at        integer not null,
  ended_at      integer not null,
  head_start_ns integer not null,
  broken        integer not null default 0,
  payload       blob,
  enquiry       blob
) strict;

create unique index leadonce_events_key on leadonce_events (update_id, bot, tenant, source, epoch);
create index leadonce_events_open on leadonce_events (ordering_key, id) where ended_at = 0;
create index leadonce_events_due on leadonce_events (tenant, due_at, id) where ended_at = 0;
create index leadonce_events_held on leadonce_events (state, accepted_at, attempts)
  where state in ('parked', 'quarantined');
create index leadonce_events_ended on leadonce_events (ended_at, state) where ended_at > 0;
create index leadonce_events_reused on leadonce_events (accepted_at) where epoch > 0;
-- Which earlier event an edit changes, or a second press repeats.
create index leadonce_events_content on leadonce_events (content_id) where content_id <> '' and state = 'planned';
create index leadonce_events_repeat on leadonce_events (repeat_key) where repeat_key <> '' and state = 'planned';

-- Whose events are stored: operation ids are derived from these three.
create table leadonce_accounts (
  source text not null,
  tenant text not null,
  bot    text not null,
  primary key (source, tenant, bot)
) strict, without rowid;

-- The version of an ordering key: what a plan compares and sets. moved_to is the key that it goes on under, or empty.
create table leadonce_keys (
  ordering_key text primary key,
  version      integer not null,
  moved_to     text not null default ''
) strict, without rowid;

create table leadonce_contacts (
  contact_key text primary key,
  tenant      text not null,
  source      text not null,
  user_id     text not null,
  crm_id      text not null
) strict, without rowid;

create table leadonce_deals (
  id            text not null unique,
  tenant        text not null,
  ordering_key  text not null,
  contact_key   text not null,
  deal_key      text not null,
  host_key      integer not null,
  generation    integer not null,
  state         text not null,
  version       integer not null,
  create_op     text not null,
  crm_id        text not null,
  opened_at     integer not null,
  last_activity integer not null,
  stage         text not null default '',
  stage_version integer not null default 0,
  stage_at      integer not null default 0,
  broken        integer not null default 0
) strict;

create unique index leadonce_deals_key on leadonce_deals (ordering_key, deal_key, generation);
create unique index leadonce_deals_open on leadonce_deals (ordering_key, deal_key) where state = 'open';
create index leadonce_deals_contact on leadonce_deals (ordering_key, contact_key, opened_at) where contact_key <> '';
create index leadonce_deals_crm on leadonce_deals (crm_id) where crm_id <> '';
create index leadonce_deals_broken on leadonce_deals (id) where broken = 1;

create table leadonce_operations (
  seq           integer primary key,
  id            text not null unique,
  tenant        text not null,
  kind          text not null,
  ordering_key  text not null,
  contact_key   text not null,
  deal_id       text not null,
  depends_on    text not null,
  blocked       integer not null,
  state         text not null,
  doubt         integer not null,
  version       integer not null,
  revision      integer not null,
  adapter       text not null,
  guarantee     text not null,
  window_ns     integer not null,
  attempts      integer not null,
  failures      integer not null,
  first_sent_at integer not null,
  last_sent_at  integer not null,
  unreturned    integer not null,
  due_at        integer not null,
  owner         text not null,
  fence         integer not null,
  lease_until   integer not null,
  crm_id        text not null,
  conflict_id   text not null,
  reason        text not null,
  created_at    integer not null,
  updated_at    integer not null,
  ended_at      integer not null,
  broken        integer not null default 0,
  fields        blob
) strict;

create index leadonce_operations_pending on leadonce_operations (tenant, due_at, seq)
  where state = 'pending' and blocked = 0 and broken = 0;
create index leadonce_operations_blocked on leadonce_operations (depends_on)
  where state = 'pending' and blocked = 1 and broken = 0;
create index leadonce_operations_sending on leadonce_operations (tenant, lease_until, seq)
  where state = 'sending' and broken = 0;
create index leadonce_operations_uncertain on leadonce_operations (tenant, due_at, seq)
  where state = 'uncertain' and broken = 0;
create index leadonce_operations_reconcile on leadonce_operations (tenant, due_at, seq)
  where state = 'needs_reconciliation' and broken = 0;
create index leadonce_operations_unfinished on leadonce_operations (state, created_at, failures)
  where state in ('pending', 'sending', 'uncertain', 'needs_reconciliation', 'failed') and broken = 0;
create index leadonce_operations_canceled on leadonce_operations (seq) where state = 'canceled';
create index leadonce_operations_ended on leadonce_operations (ended_at, state) where ended_at > 0;
create index leadonce_operations_conflict on leadonce_operations (seq, created_at, failures) where conflict_id <> '';
create index leadonce_operations_broken on leadonce_operations (seq) where broken = 1;
create index leadonce_operations_deal on leadonce_operations (deal_id) where deal_id <> '';
create index leadonce_operations_contact on leadonce_operations (contact_key) where contact_key <> '';
create index leadonce_operations_crm on leadonce_operations (crm_id) where crm_id <> '';

-- An operation with what its deal and its contact know.
create view leadonce_operation_rows as
select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op, coalesce(c.crm_id, '') as contact_id
from leadonce_operations o
  left join leadonce_deals d on d.id = o.deal_id
  left join leadonce_contacts c on c.contact_key = o.contact_key;

-- Which event caused or changed which operation.
create table leadonce_links (
  event_id     integer not null,
  operation_id text not null,
  primary key (event_id, operation_id)
) strict, without rowid;

create index leadonce_links_operation on leadonce_links (operation_id, event_id);

-- What deviated from the happy path, and what a person did.
create table leadonce_trail (
  id           integer primary key,
  at           integer not null,
  operation_id text not null,
  cause        text not null,
  from_state   text not null,
  to_state     text not null,
  attempt      integer not null,
  started_at   integer not null,
  took_ns      integer not null,
  status       integer not null,
  request_id   text not null,
  reason       text not null,
  crm_id       text not null,
  person       text not null,
  why          text not null,
  seen         integer not null
) strict;

create index leadonce_trail_operation on leadonce_trail (operation_id, id);
