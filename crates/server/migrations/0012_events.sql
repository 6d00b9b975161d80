-- What happened to sandboxes, who wants to be told, and how telling went.

CREATE TABLE events (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    sandbox_id TEXT NOT NULL,
    type TEXT NOT NULL,
    timestamp BIGINT NOT NULL,
    event TEXT NOT NULL
);
CREATE INDEX events_team ON events (team_id, timestamp);
CREATE INDEX events_sandbox ON events (sandbox_id, timestamp);

CREATE TABLE webhooks (
    id TEXT PRIMARY KEY NOT NULL,
    team_id TEXT NOT NULL REFERENCES teams (id),
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    events TEXT NOT NULL,
    secret TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX webhooks_team ON webhooks (team_id);

-- Deliveries still to be made, or to be tried again.
CREATE TABLE webhook_queue (
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    PRIMARY KEY (webhook_id, event_id)
);
CREATE INDEX webhook_queue_due ON webhook_queue (due_at);

CREATE TABLE webhook_attempts (
    id TEXT PRIMARY KEY NOT NULL,
    webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    is_success BOOLEAN NOT NULL,
    duration_ms BIGINT NOT NULL,
    timestamp BIGINT NOT NULL,
    attempt TEXT NOT NULL
);
CREATE INDEX webhook_attempts_webhook ON webhook_attempts (webhook_id, timestamp);
CREATE INDEX webhook_attempts_event ON webhook_attempts (event_id);
CREATE INDEX webhook_queue_event ON webhook_queue (event_id);
