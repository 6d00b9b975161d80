-- Sizes of the layers of images, which count for the teams whose templates, sandboxes or cached steps are on them. One that was imported
-- before counts from when it is next asked for.
CREATE TABLE image_layers (
    layer TEXT PRIMARY KEY NOT NULL,
    size_bytes BIGINT NOT NULL
);
