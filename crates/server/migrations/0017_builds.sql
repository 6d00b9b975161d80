-- Builds that teams ask for: what they are made from (`spec`, JSON), the tags they get when they are ready (`tags`, a JSON list), and
-- why they failed (`reason`, JSON). The record of a build that is not ready has its name and resources, and no layers.

ALTER TABLE template_builds ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE template_builds ADD COLUMN spec TEXT;
ALTER TABLE template_builds ADD COLUMN reason TEXT;
CREATE INDEX template_builds_status ON template_builds (status);
CREATE INDEX template_tags_build ON template_tags (build_id);

-- A deleted template keeps its row, without builds and under its id, so that nothing else gets the id.
ALTER TABLE templates ADD COLUMN deleted_at BIGINT;

-- A name that stands for a public template in every team that has no template of that name.
ALTER TABLE templates ADD COLUMN global_name TEXT;
CREATE UNIQUE INDEX templates_global_name ON templates (global_name);

-- Every build that a tag has named, for as long as the tag exists.
CREATE TABLE template_tag_assignments (
    template_id TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    build_id TEXT NOT NULL REFERENCES template_builds (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (template_id, tag, created_at)
);
CREATE INDEX template_tag_assignments_build ON template_tag_assignments (build_id);

INSERT INTO template_tag_assignments (template_id, tag, build_id, created_at)
SELECT template_id, tag, build_id, created_at FROM template_tags;
