//! The commands `quorate freeze` and `quorate unfreeze`.

use crate::{
    args::{FreezeArgs, UnfreezeArgs},
    config::{Config, Environment},
    exit::Failure,
    jobs::{self, Action},
};
use quorate::env::Env;

/// Freezes all jobs of the group until a time.
pub(crate) async fn freeze(
    args: &FreezeArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    // The clap definition requires one of the two.
    let until = match (args.until, args.length) {
        (Some(until), _) => until,
        (None, length) => Env::system().wall() + length.unwrap_or_default(),
    };
    let freeze = Action::Freeze { reason: args.reason.clone(), until };
    jobs::send(&freeze, "", &args.wait, config, environment).await
}

/// Ends the freeze of the group.
pub(crate) async fn unfreeze(
    args: &UnfreezeArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    jobs::send(&Action::Unfreeze, "", &args.wait, config, environment).await
}
