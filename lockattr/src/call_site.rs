//! Which function a call is for: known where the program is compiled, and of no call alone.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::observe::Observed;

/// A locked function, or the template that a request by hand was given.
///
/// There are as many as the program's text has: what tells calls apart without an end.
#[derive(Debug)]
pub struct CallSite {
    function: &'static str,
    template: &'static str,
    /// From 1 on, once somebody has asked for it.
    number: AtomicU32,
    /// Of all its calls, of whatever client.
    pub(crate) observed: Observed,
}

/// More templates by hand than this have none in common with their calls: their sites are not told apart.
const TEMPLATES: usize = 1024;

/// The sites of requests by hand. Nothing leaves it, and nobody waits for it.
static BY_HAND: [OnceLock<Box<CallSite>>; TEMPLATES] = [const { OnceLock::new() }; TEMPLATES];

static UNNAMED: CallSite = CallSite::new("", "");

impl CallSite {
    /// The site of a function, with its module, and the template of its key as it is written.
    #[must_use]
    pub const fn new(function: &'static str, template: &'static str) -> Self {
        Self {
            function,
            template,
            number: AtomicU32::new(0),
            observed: Observed::new(function, template),
        }
    }

    /// The site of requests by hand that name no template.
    pub(crate) fn unnamed() -> &'static Self {
        &UNNAMED
    }

    /// The site of requests by hand with a template.
    pub(crate) fn of_template(template: &'static str) -> &'static Self {
        let mut hasher = DefaultHasher::new();
        template.hash(&mut hasher);
        // The rest of a division fits into what it is divided by.
        let first = usize::try_from(hasher.finish() % TEMPLATES as u64).unwrap_or(0);
        let (before, from) = BY_HAND.split_at(first);
        let places = from.iter().chain(before);
        places
            .map(|place| &**place.get_or_init(|| Box::new(Self::new("", template))))
            .find(|site| site.template == template)
            .unwrap_or(&UNNAMED)
    }

    /// Its number in this process, from 0 on: in the order in which they are asked for. That of requests by
    /// hand without a template is none, for they have nothing in common.
    pub(crate) fn number(&self) -> Option<usize> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            if self.function.is_empty() && self.template.is_empty() {
                return None;
            }
            number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let known =
                self.number
                    .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
            number = known.err().unwrap_or(number);
        }
        usize::try_from(number - 1).ok()
    }

    /// The function with its module, as `billing::jobs::close_month`; empty for a request by hand.
    pub(crate) fn function(&self) -> &'static str {
        self.function
    }

    /// The same for an event, which leaves out what is empty.
    pub(crate) fn told_function(&self) -> Option<&'static str> {
        told(self.function())
    }

    pub(crate) fn told_template(&self) -> Option<&'static str> {
        told(self.template())
    }

    /// The template of the key, as `sync:<user_id>`; empty for a request by hand that names none.
    pub(crate) fn template(&self) -> &'static str {
        self.template
    }
}

fn told(text: &'static str) -> Option<&'static str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_one_site_and_more_than_there_is_room_for_share_one() {
        let templates: Vec<&'static str> = (0..TEMPLATES + 10)
            .map(|number| &*format!("sync-{number}:<id>").leak())
            .collect();
        let sites: Vec<_> = templates
            .iter()
            .map(|template| CallSite::of_template(template))
            .collect();
        let unnamed = |site: &&&CallSite| std::ptr::eq(**site, CallSite::unnamed());
        assert!(sites.iter().filter(unnamed).count() >= 10);
        for (template, site) in templates.iter().zip(&sites) {
            let again = CallSite::of_template(&*template.to_string().leak());
            assert!(std::ptr::eq(again, *site));
            assert!(site.template() == *template || unnamed(&site));
            assert_eq!(site.function(), "");
        }
    }
}
