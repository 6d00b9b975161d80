-- Volumes, and secrets of the server itself.

CREATE TABLE volumes (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (team_id, name)
);

CREATE TABLE server_secrets (
    name TEXT PRIMARY KEY NOT NULL,
    secret TEXT NOT NULL
);
