-- Limits of what is kept for a team beside its running sandboxes; sizes of events, which are limited together; and the age of
-- idempotency keys.

ALTER TABLE teams ADD COLUMN max_paused BIGINT NOT NULL DEFAULT 1000;
ALTER TABLE teams ADD COLUMN max_in_memory BIGINT NOT NULL DEFAULT 1000;
ALTER TABLE teams ADD COLUMN max_paused_mib BIGINT NOT NULL DEFAULT 262144;
ALTER TABLE teams ADD COLUMN max_snapshots BIGINT NOT NULL DEFAULT 1000;
ALTER TABLE teams ADD COLUMN max_snapshots_mib BIGINT NOT NULL DEFAULT 1048576;
ALTER TABLE teams ADD COLUMN max_volumes BIGINT NOT NULL DEFAULT 1000;

ALTER TABLE events ADD COLUMN bytes BIGINT NOT NULL DEFAULT 1024;
CREATE INDEX events_size ON events (team_id, timestamp, bytes);

CREATE INDEX idempotency_keys_age ON idempotency_keys (team_id, created_at);
