-- Limits of one sandbox of a team, and of what is kept for it; tokens that stand for a person of a team.

ALTER TABLE teams ADD COLUMN max_cpus BIGINT NOT NULL DEFAULT 32;
ALTER TABLE teams ADD COLUMN max_memory_mib BIGINT NOT NULL DEFAULT 262144;
ALTER TABLE teams ADD COLUMN max_disk_mib BIGINT NOT NULL DEFAULT 1048576;
ALTER TABLE teams ADD COLUMN events_ttl_days BIGINT NOT NULL DEFAULT 7;

CREATE TABLE access_tokens (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    mask TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX access_tokens_team ON access_tokens (team_id);
