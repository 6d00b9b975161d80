//! Access tokens, which users of a team authenticate with instead of a key. Stored like keys.

use jiff::Timestamp;
use sandcove_wire::api::team::KeyMask;
use sandcove_wire::secret::Secret;
use uuid::Uuid;

use super::keys::{hash, mask};
use super::teams::{TEAM_COLUMNS, team};
use super::{Store, json};
use crate::domain::limits::ACCESS_TOKENS;
use crate::domain::team::Team;
use crate::{Error, Result, clock, random};

/// The prefix of every token.
const PREFIX: &str = "sk_e2b_";

/// The record of an access token, without the token.
#[derive(Debug, Clone)]
pub struct AccessToken {
    /// The id, which is not secret.
    pub id: Uuid,
    /// The name.
    pub name: String,
    /// The part of the token that may be shown.
    pub mask: KeyMask,
    /// Time of creation.
    pub created_at: Timestamp,
}

impl Store {
    /// Creates a token for a user of `team`. The token can be shown now and never again.
    ///
    /// # Errors
    /// When the team is at its limit of tokens.
    pub async fn create_token(&self, team: &Team, name: &str) -> Result<(AccessToken, Secret)> {
        let secret = random::access_token();
        let token = AccessToken {
            id: Uuid::new_v4(),
            name: name.to_owned(),
            mask: mask(PREFIX, secret.expose()),
            created_at: clock::now(),
        };
        let done = sqlx::query(
            "INSERT INTO access_tokens (id, team_id, name, hash, mask, created_at) SELECT $1, $2, $3, $4, $5, $6 \
             WHERE (SELECT COUNT(*) FROM access_tokens WHERE team_id = $2) < $7",
        )
        .bind(token.id.to_string())
        .bind(team.id.to_string())
        .bind(&token.name)
        .bind(hash(secret.expose()))
        .bind(json(&token.mask)?)
        .bind(token.created_at.as_microsecond())
        .bind(ACCESS_TOKENS as i64)
        .execute(&self.write)
        .await?;
        match done.rows_affected() {
            0 => Err(Error::TooManyOfTeam { max: ACCESS_TOKENS, what: "access tokens" }),
            _ => Ok((token, secret)),
        }
    }

    /// Revokes a token at once; false when the team has no such token.
    pub async fn delete_token(&self, team: &Team, id: Uuid) -> Result<bool> {
        let done = sqlx::query("DELETE FROM access_tokens WHERE id = $1 AND team_id = $2")
            .bind(id.to_string())
            .bind(team.id.to_string())
            .execute(&self.write)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// The team of an access token.
    pub async fn team_of_token(&self, token: &str) -> Result<Option<Team>> {
        let sql = format!(
            "SELECT {TEAM_COLUMNS} FROM access_tokens a JOIN teams t ON t.id = a.team_id WHERE a.hash = $1"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(hash(token)).fetch_optional(&self.read).await?;
        row.as_ref().map(team).transpose()
    }
}
