-- Keys limited to models; and what a task needs to go to another provider of its model.
alter table api_keys add column models text[];
alter table tasks
    add column strict boolean not null default false,
    add column pinned boolean not null default false,
    add column tried text[] not null default '{}';
