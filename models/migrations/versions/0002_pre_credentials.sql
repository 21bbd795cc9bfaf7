-- Several credentials for one provider: a task is bound to the one its job was bought with; see models/seats.py.
-- Nothing is lost by making the chains anew: the sweep restarts what has no living one.
alter table tasks add column credential text;
alter table tasks add column seat text generated always as (provider || coalesce(':' || credential, '')) stored;
drop index tasks_running_idx;
create index tasks_running_idx on tasks (seat, type) where status = 'RUNNING';
