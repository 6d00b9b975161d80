-- Limit on the memory of paused sandboxes of a team that is on disk.

ALTER TABLE teams ADD COLUMN max_parked_mib BIGINT NOT NULL DEFAULT 1048576;
