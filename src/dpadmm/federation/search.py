r"""Is a neighbour lost, or only the link to it? Its other neighbours know.

A node that has missed a neighbour for long enough asks for it, by way of everybody: a question
``who>whom`` with a number. Whoever is asked for answers, over whatever links it has, and all hand
both on. Where sums travel along a tree that decides what the others go on without:

* the *link*, if the answer comes and the graph is connected without it;
* the *node*, if nobody who is linked with it hears it, or no answer comes within ``lost_after``.

A question counts only while its answer is missing; a node that hears its neighbour again answers in
its place. Questions bind nobody: what is voted on follows
(:class:`~dpadmm.federation.recovery.Departure`). Whoever lies here can make the others go on
without a node or a link that is there, as it can by a vote.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, final

from dpadmm.errors import ExchangeError
from dpadmm.federation.transport.session import PeerSession
from dpadmm.federation.transport.wire import BadMessage, Limits, Seeking, link_of, said

# Between two times that a question is told: short at first, then longer.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0


@final
class Search:
    """One node's part in looking for neighbours that are missed, in one view.

    Parameters
    ----------
    session
        Its connections.
    topic, label
        Under which questions and answers travel.
    links
        Who is linked with whom in the view.
    limits
        The names of the view.
    on_refused
        Called with a message that should not have been sent: its sender, a code and a sentence.
    """

    def __init__(
        self,
        session: PeerSession,
        topic: str,
        label: str,
        links: Mapping[str, tuple[str, ...]],
        limits: Limits,
        *,
        on_refused: Callable[[str, str, ExchangeError], None] = lambda name, reason, error: None,
    ) -> None:
        self._session, self._topic, self._links, self._limits = session, topic, links, limits
        self.label = label
        self._tell_refused = on_refused
        self._news = threading.Condition()
        self._asked: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        session.hear(topic, self._heard, decides=False)

    def look_for(
        self, name: str, timeout: float, can_spare: Callable[[str], bool], pause: Callable[[], None]
    ) -> str:
        """What is lost: the link to a neighbour, or the neighbour; empty once it is heard again.

        Parameters
        ----------
        name
            Whom this node misses.
        timeout
            Seconds to wait for an answer.
        can_spare
            Whether the others could go on without a link.
        pause
            Called from time to time; what it raises ends the search.
        """
        own, link = self._session.name, link_of(self._session.name, name)
        if not can_spare(link):
            return name
        question = f"{own}>{name}"
        with self._news:
            number = max(int(time.time()), self._asked.get(question, 0) + 1)
            self._asked[question] = number
        end, wait = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            self._hand_on()
            with self._news:
                self._news.wait_for(lambda: self._is_answered(question), timeout=wait)
                if self._is_answered(question):
                    return "" if self._session.present(name) else link
                everybody = (f"{each}>{name}" for each in self._links[name])
                missed = all(self._is_open(each) for each in everybody)
            if self._session.present(name):
                with self._news:
                    self._answered[question] = number
                self._hand_on()
                return ""
            if missed or time.monotonic() > end:
                return name
            pause()
            wait = min(1.5 * wait, _LONGEST_PAUSE)

    def said(self) -> bytes:
        """What is asked and answered, as it is known here."""
        with self._news:
            return Seeking(asked=dict(self._asked), answered=dict(self._answered)).to_bytes()

    def take(self, name: str, label: str, data: bytes) -> None:
        """Take what a neighbour hands on; answer what is asked of this node."""
        try:
            content = said(Seeking, data, name, self._limits)
        except BadMessage as error:
            self._tell_refused(name, error.reason, error)
            return
        own = self._session.name
        with self._news:
            before = (dict(self._asked), dict(self._answered))
            for known, new in ((self._asked, content.asked), (self._answered, content.answered)):
                for question, number in new.items():
                    known[question] = max(number, known.get(question, 0))
            for question in list(self._asked):
                whom = question.partition(">")[2]
                if whom == own:
                    self._answered[question] = self._asked[question]
                elif whom in self._session.neighbours and own in self._links.get(whom, ()):
                    self._join(f"{own}>{whom}", whom, missed=self._is_open(question))
            changed = before != (self._asked, self._answered)
            self._news.notify_all()
        if changed:
            self._hand_on()

    def _join(self, question: str, whom: str, *, missed: bool) -> None:
        """Say whether this node hears a neighbour that another one misses."""
        if self._session.present(whom):
            if self._is_open(question):
                self._answered[question] = self._asked[question]
        elif missed and not self._is_open(question):
            self._asked[question] = max(int(time.time()), self._asked.get(question, 0) + 1)

    def _is_answered(self, question: str) -> bool:
        return not self._is_open(question)

    def _is_open(self, question: str) -> bool:
        return self._asked.get(question, 0) > self._answered.get(question, 0)

    def _hand_on(self) -> None:
        # It may be lost: neighbours also ask.
        self._session.publish(self._topic, self.label, self.said(), decides=False)

    def _heard(self, name: str, label: str, data: bytes) -> None:
        if label == self.label:
            self.take(name, label, data)
