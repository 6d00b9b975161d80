//! Volumes of a team (contract: control-plane, section 11).

use http::Method;
use sandcove_wire::api::team::Named;
use sandcove_wire::api::volume::{Volume, VolumeAndToken};

use crate::error::Result;
use crate::server::{Client, segment};

impl Client {
    /// The volumes of the team.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.json(Method::GET, "/volumes", None::<&()>).await
    }

    /// The volume with this id, and a token for its files.
    ///
    /// # Errors
    /// If the team has no such volume.
    pub async fn volume(&self, id: &str) -> Result<VolumeAndToken> {
        self.json(Method::GET, &format!("/volumes/{}", segment(id)), None::<&()>).await
    }

    /// Creates an empty volume.
    ///
    /// # Errors
    /// If the server refuses the name, or has a volume of that name.
    pub async fn create_volume(&self, name: &str) -> Result<VolumeAndToken> {
        let body = Named { name: name.to_owned() };
        self.json(Method::POST, "/volumes", Some(&body)).await
    }

    /// Deletes the volume with this id and all files in it; false if there is none.
    ///
    /// # Errors
    /// If the server does not answer, or refuses.
    pub async fn delete_volume(&self, id: &str) -> Result<bool> {
        self.delete(&format!("/volumes/{}", segment(id))).await
    }
}
