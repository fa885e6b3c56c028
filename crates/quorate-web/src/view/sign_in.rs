use super::{context::Context, forms, layout};
use maud::html;

pub(crate) fn sign_in(context: &Context<'_>) -> String {
    let main = html! {
        div.verdict { h1 { "Sign in" } p { "With the read token you see everything; with the operate token you may also act." } }
        (forms::sign_in(context))
        p.small.soft { "The session ends after 12 hours, when you sign out, or when this process ends." }
    };
    let header = layout::mark(context, "");
    layout::document(
        "Sign in",
        None,
        &header,
        &main,
        &html! { span { "Quorate " (env!("CARGO_PKG_VERSION")) } },
        context,
    )
}
