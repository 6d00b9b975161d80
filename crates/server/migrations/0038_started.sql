-- Snapshots with the state after a start command whose build is gone. They are deleted later, unless other builds have them too.
CREATE TABLE unused_started (snapshot TEXT PRIMARY KEY);

CREATE TRIGGER template_builds_started AFTER DELETE ON template_builds
WHEN json_extract(OLD.record, '$.started.snapshot') IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO unused_started (snapshot) VALUES (json_extract(OLD.record, '$.started.snapshot'));
END;
