//! Who is told of the end of a lease.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Instant;

use super::{Acquisition, Aside};
use crate::runtime::waker;

impl Acquisition {
    /// Has `waker` woken when the lease ends. To be called before looking whether it has; a ticket
    /// is to be kept for the next call, and handed in when there is none.
    pub(crate) fn wake_at_end(&self, ticket: &mut Option<usize>, waker: &Waker) {
        let mut aside = self.aside();
        let known = ticket.and_then(|ticket| aside.waker_of(ticket));
        let place = if let Some(place) = known {
            place
        } else {
            let free = aside.free_ticket();
            *ticket = Some(free);
            match aside.waker_of(free) {
                Some(place) => place,
                None => return,
            }
        };
        let before = waker::replace(place, waker);
        drop(aside);
        drop(before);
    }

    /// Nobody waits with this ticket any more.
    pub(crate) fn hand_in(&self, ticket: usize) {
        let mut aside = match self.aside.try_lock() {
            Ok(aside) => aside,
            // Of a process that has forked this one, whose thread may hold it for ever.
            Err(_) if !self.common.origin.process().is_here() => return,
            Err(_) => self.aside(),
        };
        let waker = aside.waker_of(ticket).and_then(Option::take);
        drop(aside);
        drop(waker);
    }

    pub(super) fn tell_ended(&self) {
        let mut aside = self.aside();
        let first = aside.waker.take();
        let more = aside.more.as_mut().map(|more| mem::take(&mut more.wakers));
        drop(aside);
        let more = more.into_iter().flatten().flatten();
        first.into_iter().chain(more).for_each(Waker::wake);
    }

    /// Wakes those who wait for the end, to look when it is.
    pub(crate) fn wake(&self) {
        let aside = self.aside();
        let first = aside.waker.clone();
        let more = aside.more.as_ref().map(|more| more.wakers.clone());
        drop(aside);
        let more = more.into_iter().flatten().flatten();
        first.into_iter().chain(more).for_each(Waker::wake);
    }

    /// Waits until the lease has ended, in whatever way.
    pub(crate) async fn ended(&self) {
        let mut waits = Waits::new(self);
        poll_fn(|cx| {
            if waits.have_ended(cx.waker()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Polls `work` until it is done or the lease has ended.
    pub(crate) async fn while_it_lasts<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut waits = Waits::new(self);
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if waits.have_ended(cx.waker()) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until nothing that is outstanding may shorten it any more, or it has ended.
    pub(crate) async fn not_to_be_shortened(&self) {
        let mut waits = Waits::new(self);
        poll_fn(|cx| {
            if waits.have_ended(cx.waker()) || !self.may_be_shortened() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Waits for a moment in the calling runtime's time, which is reckoned anew at each wake-up; says
    /// whether the lease has ended before.
    pub(crate) async fn ended_before(&self, moment: impl Fn() -> Instant) -> bool {
        let mut waits = Waits::new(self);
        let mut sleep = pin!(tokio::time::sleep_until(moment().into()));
        poll_fn(|cx| {
            if waits.have_ended(cx.waker()) {
                return Poll::Ready(true);
            }
            let moment = moment().into();
            if sleep.deadline() != moment {
                sleep.as_mut().reset(moment);
            }
            sleep.as_mut().poll(cx).map(|()| false)
        })
        .await
    }
}

impl Aside {
    /// The waker of a ticket: 0 is the first one's.
    fn waker_of(&mut self, ticket: usize) -> Option<&mut Option<Waker>> {
        match ticket.checked_sub(1) {
            None => Some(&mut self.waker),
            Some(index) => self.more.as_mut()?.wakers.get_mut(index),
        }
    }

    fn free_ticket(&mut self) -> usize {
        if self.waker.is_none() {
            return 0;
        }
        let wakers = &mut self.more().wakers;
        let free = wakers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            wakers.push(None);
            wakers.len() - 1
        });
        index + 1
    }
}

/// Somebody who waits for the end of a lease.
struct Waits<'a> {
    acquisition: &'a Acquisition,
    ticket: Option<usize>,
}

impl<'a> Waits<'a> {
    fn new(acquisition: &'a Acquisition) -> Self {
        Self {
            acquisition,
            ticket: None,
        }
    }

    fn have_ended(&mut self, waker: &Waker) -> bool {
        self.acquisition.wake_at_end(&mut self.ticket, waker);
        self.acquisition.has_ended()
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.acquisition.hand_in(ticket);
        }
    }
}
