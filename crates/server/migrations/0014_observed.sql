-- What is seen of sandboxes; it outlives them for a week.

CREATE TABLE sandbox_logs (
    id INTEGER PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    sandbox_id TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    entry TEXT NOT NULL
);

CREATE INDEX sandbox_logs_by_sandbox ON sandbox_logs (sandbox_id, id);
CREATE INDEX sandbox_logs_by_time ON sandbox_logs (timestamp);

-- A row is about a minute of readings; `timestamp` is that of the last.
CREATE TABLE sandbox_readings (
    id INTEGER PRIMARY KEY,
    team_id TEXT NOT NULL REFERENCES teams (id),
    sandbox_id TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    readings TEXT NOT NULL
);

CREATE INDEX sandbox_readings_by_sandbox ON sandbox_readings (sandbox_id, timestamp);
CREATE INDEX sandbox_readings_by_time ON sandbox_readings (timestamp);
