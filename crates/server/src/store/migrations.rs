//! Migrations of the database. They are listed here instead of found by sqlx's macro, for which SQLite and all of sqlx would be
//! compiled a second time, to run inside the compiler.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Number, name and text of each migration; a released one never changes.
const STEPS: &[(i64, &str, &str)] = &[
    (1, "base", include_str!("../../migrations/0001_base.sql")),
    (10, "teams", include_str!("../../migrations/0010_teams.sql")),
    (11, "volumes", include_str!("../../migrations/0011_volumes.sql")),
    (12, "events", include_str!("../../migrations/0012_events.sql")),
    (13, "team metrics", include_str!("../../migrations/0013_team_metrics.sql")),
    (14, "observed", include_str!("../../migrations/0014_observed.sql")),
    (15, "whole builds", include_str!("../../migrations/0015_whole_builds.sql")),
    (16, "quotas", include_str!("../../migrations/0016_quotas.sql")),
    (17, "builds", include_str!("../../migrations/0017_builds.sql")),
    (18, "step cache", include_str!("../../migrations/0018_step_cache.sql")),
    (22, "secrets", include_str!("../../migrations/0022_secrets.sql")),
    (36, "rates", include_str!("../../migrations/0036_rates.sql")),
    (38, "started", include_str!("../../migrations/0038_started.sql")),
    (39, "parked", include_str!("../../migrations/0039_parked.sql")),
    (40, "bounded builds", include_str!("../../migrations/0040_bounded_builds.sql")),
    (41, "image layers", include_str!("../../migrations/0041_image_layers.sql")),
];

/// Number of the last step.
pub(super) fn last() -> i64 {
    STEPS.iter().map(|&(number, ..)| number).max().unwrap_or_default()
}

/// The migrator that brings a database up to date.
pub(super) fn migrator() -> Migrator {
    migrator_of(STEPS)
}

fn migrator_of(steps: &[(i64, &'static str, &'static str)]) -> Migrator {
    let step = |&(number, name, text): &(i64, &'static str, &'static str)| {
        Migration::new(number, name.into(), MigrationType::Simple, text.into_sql_str(), false)
    };
    Migrator::with_migrations(steps.iter().map(step).collect())
}

#[cfg(test)]
mod tests {
    use sqlx::migrate::MigrateError;
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

    use super::*;

    #[tokio::test]
    async fn servers_without_a_step_refuse_the_database_even_if_the_step_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sandcove.db");
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let database = SqlitePool::connect_with(options).await.unwrap();
        migrator().run(&database).await.unwrap();
        for (known, &(first_unknown, ..)) in STEPS.iter().enumerate() {
            let refused = migrator_of(&STEPS[..known]).run(&database).await;
            assert!(
                matches!(refused, Err(MigrateError::VersionMissing(step)) if step == first_unknown),
                "with {known} steps: {refused:?}"
            );
        }
        // The form of sandboxes' rows changed with this step only.
        assert!(STEPS.iter().any(|&(number, ..)| number == 15));
        migrator().run(&database).await.unwrap();
        database.close().await;
    }

    #[tokio::test]
    async fn databases_of_every_earlier_version_become_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let open = async |name: String| {
            let options =
                SqliteConnectOptions::new().filename(directory.path().join(name)).create_if_missing(true);
            SqlitePool::connect_with(options).await.unwrap()
        };
        let mut schemas = Vec::new();
        for known in 0..=STEPS.len() {
            let database = open(format!("{known}.db")).await;
            migrator_of(&STEPS[..known]).run(&database).await.unwrap();
            if known > 0 {
                sqlx::query("INSERT INTO templates (id, name, public, created_at, updated_at) VALUES ('t', 'kept', 1, 1, 1)")
                    .execute(&database)
                    .await
                    .unwrap();
            }
            migrator().run(&database).await.unwrap();
            let kept = "SELECT COUNT(*) FROM templates WHERE name = 'kept'";
            let kept: i64 = sqlx::query_scalar(kept).fetch_one(&database).await.unwrap();
            assert_eq!(kept, i64::from(known > 0), "with {known} steps");
            let schema = "SELECT type, name, COALESCE(sql, '') FROM sqlite_master ORDER BY type, name";
            let schema: Vec<(String, String, String)> =
                sqlx::query_as(schema).fetch_all(&database).await.unwrap();
            schemas.push(schema);
            database.close().await;
        }
        assert!(schemas[0].len() > 20 && schemas.iter().all(|schema| *schema == schemas[0]));
    }

    #[test]
    fn every_file_is_a_step() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let steps: Vec<String> = STEPS
            .iter()
            .map(|(number, name, _)| format!("{number:04}_{}.sql", name.replace(' ', "_")))
            .collect();
        assert_eq!(files, steps);
    }
}
