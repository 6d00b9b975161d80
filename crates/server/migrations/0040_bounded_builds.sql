-- How often a build has begun: again each time that the server has ended.
ALTER TABLE template_builds ADD COLUMN begun BIGINT NOT NULL DEFAULT 0;

-- What a build is made from is needed until the build has ended.
UPDATE template_builds SET spec = NULL WHERE status IN ('ready', 'error');
CREATE TRIGGER template_builds_ended AFTER UPDATE OF status ON template_builds
WHEN NEW.status IN ('ready', 'error') AND NEW.spec IS NOT NULL
BEGIN
    UPDATE template_builds SET spec = NULL WHERE id = NEW.id;
END;

-- Whether a build is a snapshot of a sandbox; it was read from the text of the record.
ALTER TABLE template_builds ADD COLUMN is_snapshot BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE template_builds SET is_snapshot = TRUE WHERE record LIKE '%"snapshot_of":"%';
CREATE INDEX template_builds_snapshots ON template_builds (template_id, is_snapshot);

-- Deleted templates keep their row for a time, by which they are found.
CREATE INDEX templates_deleted ON templates (deleted_at);
