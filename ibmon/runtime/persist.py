"""What a running daemon keeps and sends: the store with its lock, the history, the webhooks' outbox, the alerts.

One transaction for all that a step decided, before anything of it leaves the node. When saving fails the daemon goes
on from memory and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ibmon.config import Config
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.memory import Memory, load_memory
from ibmon.messages import Alerts, Effect, Log, Save, Send
from ibmon.model import Now, Ownership, PortId
from ibmon.ports import StoreError
from ibmon.runtime import logs
from ibmon.runtime.housekeeping import Chore
from ibmon.statedir import NODE_LOCK, StateLock
from ibmon.store import Store

if TYPE_CHECKING:
    from ibmon.alert.alertmanager import AlertmanagerSender
    from ibmon.alert.webhook import WebhookSender

log = logging.getLogger(__name__)
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Persistence:
    """The state directory of a running daemon.

    Attributes:
        acts: False where a lock cannot be had: then this one exports, says so in one alert, and does nothing else.
        second: whether that is because another daemon of this node holds it.

    `page` is where people find this node's page.
    """

    def __init__(self, config: Config, node: str, machine: str, page: str, metrics: SelfMetrics) -> None:
        directory = Path(config.state.directory)
        self._node = node
        self._metrics = metrics
        self._locks = (StateLock(config.state.runtime_directory, NODE_LOCK), StateLock(directory))
        self.second = False
        self._idle = self._why_idle()
        self.acts = not self._idle
        self.store = Store(directory, node=node, machine=machine or None)
        self._sender: WebhookSender | None = None
        self._unsaved = ""
        self._unusable = ""  # why the stored state was not taken
        self._owed: Save | None = None  # the newest state that could not be saved
        if self.acts and config.webhook:
            from ibmon.alert.webhook import WebhookSender  # brings urllib3

            self._sender = WebhookSender(self.store, config.webhook, node=node, metrics=metrics)
        self._alertmanagers: AlertmanagerSender | None = None
        if config.alertmanager:
            from ibmon.alert.alertmanager import AlertmanagerSender  # brings urllib3

            # What is told of this one alone is kept nowhere: the record is of who speaks for the node.
            self._alertmanagers = AlertmanagerSender(
                directory if self.acts else None, config.alertmanager, node=node, source=page, metrics=metrics
            )

    def _why_idle(self) -> str:
        """Take the locks; why this daemon does not act, empty where it does."""
        node, state = self._locks
        try:
            first = node.acquire()
        except StoreError as error:  # without a runtime directory the state directory says whether there is another
            why = str(error).partition(";")[0]
            log.warning("%s; a second daemon with another state directory would not be noticed", why)
            first = True
        try:
            self.second = not (first and state.acquire())
        except StoreError as error:
            # Nobody can tell whether another daemon acts for this node, so this one does not.
            return f"{error}: nothing is saved, and nothing is asked of the scheduler"
        held = state if first else node
        return (
            f"another ibmon runs on {held.path.parent}: this one exports, and acts for nothing" if self.second else ""
        )

    def load(self) -> Memory | None:
        """The engine's state, None where there is none that can be used."""
        if not self.acts:
            return None
        try:
            state = self.store.load()
        except StoreError as error:
            log.error("%s: starting without history", error)
            return None
        if self.store.set_aside:
            log.error(self.store.set_aside)
        if self.store.network:
            log.warning(self.store.network)
        memory = load_memory(state)
        if memory is None and state is not None:
            self._unusable = f"the state in {self.store.path} is damaged or of another version"
            log.error("%s: starting without history", self._unusable)
        return memory

    def ownership(self) -> Ownership | None:
        """The record of a drain; None also where it cannot be read (a drain of ours is then an orphan)."""
        if not self.acts:
            return None
        try:
            return self.store.ownership()
        except StoreError as error:
            log.error("%s: a drain of ours would be nobody's", error)
            return None

    def commit(self, effects: Sequence[Effect], now: Now) -> None:
        """Save what these effects say is to be saved, all or nothing, and write their log lines."""
        logged = [e for e in effects if isinstance(e, Log)]
        for entry in logged:
            log.log(_LEVELS[entry.level], "%s", logs.line(entry.event, entry.fields))
        kept = [e for e in effects if isinstance(e, Save | Log | Send)]
        newest = next((e for e in reversed(kept) if isinstance(e, Save)), None)
        if newest is None and self._owed is not None:
            kept.append(newest := self._owed)
        if not kept or not self.acts:
            return
        try:
            with self.store.transaction():
                for effect in kept:
                    self._keep(effect, now)
        except StoreError as error:
            self._metrics.save_failed()
            self._owed = newest
            for message in (e for e in kept if isinstance(e, Send)):
                self._keep(message, now)  # the outbox keeps it in memory, so a bad disk silences nobody
            if not self._unsaved:
                self._unsaved = str(error)
                log.error("%s: going on from memory, and giving nothing back that is not saved", error)
            return
        self._owed = None
        if self._unsaved:
            self._unsaved = ""
            log.info(logs.line("saving-again", {"file": self.store.path}))

    def retry(self, now: Now) -> None:
        """Try once more to save a state that could not be saved."""
        if self._owed is not None:
            self.commit((), now)

    @property
    def unsaved(self) -> str:
        """Why what was decided last is kept in memory only; empty where it is saved."""
        return self._unsaved if self.acts else self._idle

    def troubles(self) -> dict[str, str]:
        """What is wrong with the state now, by the name of its notice. A state that was lost is one until a restart."""
        if not self.acts:
            return {"actions-disabled": self._idle}
        found = {
            "state-lost": self.store.set_aside or self._unusable,
            "state-on-network": self.store.network,
            "state-unsaved": self._unsaved,
        }
        return {name: text for name, text in found.items() if text}

    def _keep(self, effect: Save | Log | Send, now: Now) -> None:
        if isinstance(effect, Save):
            self.store.save(effect.state)
        elif isinstance(effect, Log):
            self.store.add_event(now.wall, effect.level, effect.event, effect.fields)
        elif self._sender is not None:
            self._sender.send(effect.topic, effect.subject, effect.body)

    def fire(self, alerts: Alerts, rails: Mapping[PortId, int | None]) -> None:
        """Have these alerts told, and no others; the rails are a label of them."""
        if self._alertmanagers is not None:
            self._alertmanagers.fire(alerts.firing, rails, alerts.notices)

    def chore(self, chore: Chore) -> None:
        """Prune or compact the store."""
        if not self.acts:
            return
        try:
            if chore == "prune":
                self.store.prune()
            else:
                self.store.compact()
        except StoreError as error:
            log.error("%s", error)

    def close(self) -> None:
        """Stop sending, close the file, give the lock back."""
        if self._sender is not None:
            self._sender.close()
        if self._alertmanagers is not None:
            self._alertmanagers.close()
        self.store.close()
        for lock in self._locks:
            lock.release()
