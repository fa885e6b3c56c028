//! The commands `quorate freeze` and `quorate unfreeze`.

use crate::{
    args::{FreezeArgs, UnfreezeArgs},
    config::{Config, Environment},
    exit::Failure,
    jobs::{self, Action},
};

/// Freezes all jobs of the group until a time.
pub(crate) async fn freeze(
    args: &FreezeArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    // The clap definition requires one of the two. The leader compares the end with the quorum's clock, from which
    // the clock of this machine may differ.
    let freeze = |now| Action::Freeze {
        reason: args.reason.clone(),
        until: args.until.unwrap_or_else(|| now + args.length.unwrap_or_default()),
    };
    jobs::send_at(freeze, "", &args.wait, config, environment).await
}

/// Ends the freeze of the group.
pub(crate) async fn unfreeze(
    args: &UnfreezeArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    jobs::send(&Action::Unfreeze, "", &args.wait, config, environment).await
}
