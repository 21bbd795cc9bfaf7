-- How often a fetch began and was not heard of again: one that kills its worker must not go round for ever.
alter table tasks
    add column fetch_starts integer not null default 0,
    add column fetch_until timestamptz;
