//! Teams, and the team of an API key.

use std::time::Duration;

use sandcove_wire::secret::Secret;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::keys::hash;
use super::known_keys::TTL;
use super::{Store, corrupt};
use crate::domain::team::{Caps, Quota, Standing, Team, rates};
use crate::{Error, Result, clock, random};

/// The default team, which the first start creates.
#[derive(Debug)]
pub struct FirstTeam {
    /// The team.
    pub team: Team,
    /// The key that this start created; it is not stored and must be shown.
    pub new_key: Option<Secret>,
}

/// Minimum time between two updates of a key's last use.
const LAST_USED_MICROS: i64 = TTL.as_micros() as i64;

pub(super) const TEAM_COLUMNS: &str = "t.id, t.slug, t.name, t.is_default, t.banned, t.blocked_reason, \
     t.max_sandboxes, t.max_session_seconds, t.max_cpus, t.max_memory_mib, t.max_disk_mib, t.events_ttl_days, \
     t.max_paused, t.max_in_memory, t.max_paused_mib, t.max_snapshots, t.max_snapshots_mib, t.max_volumes, \
     t.bandwidth_mbps, t.connections_per_second, t.max_parked_mib";

impl Store {
    /// Makes sure that there is a default team with these limits, and that it has a key: `key`, an existing one, or a new
    /// one.
    pub async fn ensure_default_team(
        &self,
        key: Option<&Secret>,
        max_sandboxes: u32,
        max_session: Duration,
    ) -> Result<FirstTeam> {
        let session_seconds = i64::try_from(max_session.as_secs()).unwrap_or(i64::MAX);
        sqlx::query(
            "INSERT INTO teams (id, slug, name, is_default, max_sandboxes, max_session_seconds, created_at) \
             SELECT $1, 'default', 'Default', TRUE, $2, $3, $4 \
             WHERE NOT EXISTS (SELECT 1 FROM teams WHERE is_default)",
        )
        .bind(Uuid::new_v4().to_string())
        .bind(i64::from(max_sandboxes))
        .bind(session_seconds)
        .bind(clock::now().as_microsecond())
        .execute(&self.write)
        .await?;
        sqlx::query("UPDATE teams SET max_sandboxes = $1, max_session_seconds = $2 WHERE is_default")
            .bind(i64::from(max_sandboxes))
            .bind(session_seconds)
            .execute(&self.write)
            .await?;
        self.known_keys.forget();
        let team = self.default_team().await?;
        let mut new_key = None;
        match key {
            Some(key) => self.add_key(&team, "configured", key).await?,
            None if !self.has_key(&team).await? => {
                let key = random::api_key();
                self.add_key(&team, "first", &key).await?;
                new_key = Some(key);
            }
            None => {}
        }
        Ok(FirstTeam { team, new_key })
    }

    /// Inserts a team.
    pub async fn add_team(&self, team: &Team) -> Result<()> {
        let insert = sqlx::query(
            "INSERT INTO teams (slug, name, banned, blocked_reason, max_sandboxes, max_session_seconds, max_cpus, \
             max_memory_mib, max_disk_mib, events_ttl_days, max_paused, max_in_memory, max_paused_mib, max_snapshots, \
             max_snapshots_mib, max_volumes, bandwidth_mbps, connections_per_second, max_parked_mib, id, is_default, \
             created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)",
        );
        let insert = bind_changeable(insert, team).bind(team.id.to_string());
        match insert.bind(team.is_default).bind(clock::now().as_microsecond()).execute(&self.write).await {
            Ok(_) => Ok(()),
            Err(err) if err.as_database_error().is_some_and(|err| err.is_unique_violation()) => {
                Err(Error::Refused(format!("there is a team `{}` already", team.slug)))
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Updates a team.
    pub async fn update_team(&self, team: &Team) -> Result<()> {
        let update = sqlx::query(
            "UPDATE teams SET slug = $1, name = $2, banned = $3, blocked_reason = $4, max_sandboxes = $5, \
             max_session_seconds = $6, max_cpus = $7, max_memory_mib = $8, max_disk_mib = $9, \
             events_ttl_days = $10, max_paused = $11, max_in_memory = $12, max_paused_mib = $13, max_snapshots = $14, \
             max_snapshots_mib = $15, max_volumes = $16, bandwidth_mbps = $17, connections_per_second = $18, \
             max_parked_mib = $19 WHERE id = $20",
        );
        bind_changeable(update, team).bind(team.id.to_string()).execute(&self.write).await?;
        self.known_keys.forget();
        Ok(())
    }

    /// Every team, oldest first.
    pub async fn teams(&self) -> Result<Vec<Team>> {
        let sql = format!("SELECT {TEAM_COLUMNS} FROM teams t ORDER BY t.created_at, t.id");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&self.read).await?;
        rows.iter().map(team).collect()
    }

    /// The team of an API key, and the key's id.
    pub async fn team_of_key(&self, key: &str) -> Result<Option<(Team, Uuid)>> {
        let hash = hash(key);
        if let Some(known) = self.known_keys.get(&hash) {
            return Ok(Some(known));
        }
        let stamp = self.known_keys.stamp();
        let sql = format!(
            "SELECT {TEAM_COLUMNS}, k.id AS key_id, k.last_used_at FROM api_keys k \
             JOIN teams t ON t.id = k.team_id WHERE k.hash = $1"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(&hash).fetch_optional(&self.read).await?;
        let Some(row) = row else { return Ok(None) };
        let now = clock::now().as_microsecond();
        let last_used: Option<i64> = row.try_get("last_used_at")?;
        let id: String = row.try_get("key_id")?;
        if last_used.is_none_or(|last| now - last > LAST_USED_MICROS) {
            let update =
                sqlx::query("UPDATE api_keys SET last_used_at = $1 WHERE id = $2").bind(now).bind(&id);
            // On a full disk, the server can still be asked.
            if let Err(error) = update.execute(&self.write).await {
                tracing::debug!(%error, "the last use of an API key was not stored");
            }
        }
        let (team, id) = (team(&row)?, Uuid::parse_str(&id).map_err(corrupt("API key", &id))?);
        self.known_keys.put(stamp, hash, &team, id);
        Ok(Some((team, id)))
    }

    /// The team with this id.
    pub async fn team(&self, id: Uuid) -> Result<Option<Team>> {
        let sql = format!("SELECT {TEAM_COLUMNS} FROM teams t WHERE t.id = $1");
        let row =
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.to_string()).fetch_optional(&self.read).await?;
        row.as_ref().map(team).transpose()
    }

    /// The default team.
    pub async fn default_team(&self) -> Result<Team> {
        let sql = format!("SELECT {TEAM_COLUMNS} FROM teams t WHERE t.is_default");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_optional(&self.write).await?;
        row.as_ref().map(team).transpose()?.ok_or(Error::Internal("there is no default team"))
    }

    async fn has_key(&self, team: &Team) -> Result<bool> {
        let row = sqlx::query("SELECT COUNT(*) AS n FROM api_keys WHERE team_id = $1")
            .bind(team.id.to_string())
            .fetch_one(&self.write)
            .await?;
        Ok(row.try_get::<i64, _>("n")? > 0)
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

/// Binds the columns that may change, in the order of both statements that write teams.
fn bind_changeable<'q>(query: Query<'q>, team: &'q Team) -> Query<'q> {
    let blocked = match &team.standing {
        Standing::Blocked(reason) => Some(reason.as_str()),
        Standing::Good | Standing::Banned => None,
    };
    query
        .bind(&team.slug)
        .bind(&team.name)
        .bind(team.standing == Standing::Banned)
        .bind(blocked)
        .bind(i64::from(team.max_sandboxes))
        .bind(i64::try_from(team.max_session.as_secs()).unwrap_or(i64::MAX))
        .bind(i64::from(team.caps.cpus))
        .bind(i64::try_from(team.caps.memory_mib).unwrap_or(i64::MAX))
        .bind(i64::try_from(team.caps.disk_mib).unwrap_or(i64::MAX))
        .bind(i64::from(team.events_ttl_days))
        .bind(i64::from(team.quota.paused))
        .bind(i64::from(team.quota.in_memory))
        .bind(i64::try_from(team.quota.memory_mib).unwrap_or(i64::MAX))
        .bind(i64::from(team.quota.snapshots))
        .bind(i64::try_from(team.quota.snapshots_mib).unwrap_or(i64::MAX))
        .bind(i64::from(team.quota.volumes))
        .bind(i64::from(team.caps.bandwidth_mbps()))
        .bind(i64::from(team.caps.rates.connections.unwrap_or_default()))
        .bind(i64::try_from(team.quota.parked_mib).unwrap_or(i64::MAX))
}

pub(super) fn team(row: &SqliteRow) -> Result<Team> {
    let id: String = row.try_get("id")?;
    let blocked: Option<String> = row.try_get("blocked_reason")?;
    let standing = match blocked {
        _ if row.try_get("banned")? => Standing::Banned,
        Some(reason) => Standing::Blocked(reason),
        None => Standing::Good,
    };
    Ok(Team {
        id: Uuid::parse_str(&id).map_err(corrupt("team", &id))?,
        slug: row.try_get("slug")?,
        name: row.try_get("name")?,
        is_default: row.try_get("is_default")?,
        standing,
        max_sandboxes: small(row, "max_sandboxes")?,
        max_session: Duration::from_secs(large(row, "max_session_seconds")?),
        caps: Caps {
            cpus: small(row, "max_cpus")?,
            memory_mib: large(row, "max_memory_mib")?,
            disk_mib: large(row, "max_disk_mib")?,
            rates: rates(small(row, "bandwidth_mbps")?, small(row, "connections_per_second")?),
        },
        events_ttl_days: small(row, "events_ttl_days")?,
        quota: Quota {
            paused: small(row, "max_paused")?,
            in_memory: small(row, "max_in_memory")?,
            memory_mib: large(row, "max_paused_mib")?,
            parked_mib: large(row, "max_parked_mib")?,
            snapshots: small(row, "max_snapshots")?,
            snapshots_mib: large(row, "max_snapshots_mib")?,
            volumes: small(row, "max_volumes")?,
        },
    })
}

fn small(row: &SqliteRow, column: &str) -> Result<u32> {
    Ok(u32::try_from(row.try_get::<i64, _>(column)?).unwrap_or(u32::MAX))
}

fn large(row: &SqliteRow, column: &str) -> Result<u64> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}
