-- Layers of images that count for teams, with their sizes: from their import until they are gone, or the team needs them no longer. One that was
-- imported before counts from when the team next asks for its image.
CREATE TABLE image_layers (
    team_id TEXT NOT NULL REFERENCES teams (id),
    layer TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (team_id, layer)
);
