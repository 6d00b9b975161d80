-- Limits on the traffic of a sandbox of a team; 0 is no limit.

ALTER TABLE teams ADD COLUMN bandwidth_mbps BIGINT NOT NULL DEFAULT 0;
ALTER TABLE teams ADD COLUMN connections_per_second BIGINT NOT NULL DEFAULT 0;
