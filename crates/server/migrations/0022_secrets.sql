-- Secrets. Values are sealed by the host process, with keys that are not in this database.

CREATE TABLE secrets (
    id TEXT PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    sealed TEXT NOT NULL,
    version BIGINT NOT NULL,
    metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (team_id, name)
);
