"""How an answer is made, and how two answers become a difference; no wire, no event loop.

    replica = Replica.open(store, Memory(512 << 20))
    view = View.at(replica, clock)
    question = Question.of_text("SELECT lane, speed FROM cars RANGE 1 HOUR", view.state)
    answer = AnswerMaker(store).answer(view, question)

A `Replica` is a store in memory, a `View` one moment of it. A `Question` becomes a `Plan`
(`planning`, `refresh`); its window chooses rows (`windows`, `partitions`, `keyed_history`), its
predicate's matches say which of them count (`matching`), and `evaluate` makes the answer of those.
What was found out on the way is kept for the next answer (`caches`, `folds`). `difference` tells
what changed between two answers.
"""

from psoup.answers.chosen import ChosenRows
from psoup.answers.evaluate import Answer
from psoup.answers.maker import AnswerMaker
from psoup.answers.plan import Plan
from psoup.answers.question import Question
from psoup.answers.replica import Replica
from psoup.answers.view import View

__all__ = ["Answer", "AnswerMaker", "ChosenRows", "Plan", "Question", "Replica", "View"]
