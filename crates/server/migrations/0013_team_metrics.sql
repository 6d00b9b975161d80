-- How busy teams were; a row stands for the seconds up to its time.

CREATE TABLE team_metrics (
    team_id TEXT NOT NULL REFERENCES teams (id),
    timestamp BIGINT NOT NULL,
    concurrent BIGINT NOT NULL,
    starts BIGINT NOT NULL,
    PRIMARY KEY (team_id, timestamp)
);
