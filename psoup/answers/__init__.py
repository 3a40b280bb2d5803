"""How an answer is made, and how two answers become a difference; no wire, no event loop.

    replica = Replica.open(store, Memory(512 << 20))
    view = View.at(replica, clock)
    question = Question.of_text("SELECT lane, speed FROM cars RANGE 1 HOUR", view.state)
    answer = AnswerMaker(store).answer(view, question)

A `Replica` is a store in memory, a `View` one moment of it (`replicas`). A `Question` becomes a
`Plan` (`planning`, `refresh`). Its window chooses rows (`rows`), its predicate's matches say which
of them count (`matching`), and `evaluate` makes the answer, with `joins` if there are several legs.
Intermediate results are cached for the next answer (`caches`, `rows.folds`). `difference` computes
what changed between two answers.
"""

from psoup.answers.chosen import ChosenRows
from psoup.answers.evaluate import Answer
from psoup.answers.maker import AnswerMaker
from psoup.answers.planning.plan import Plan
from psoup.answers.planning.question import Question
from psoup.answers.replicas.replica import Replica
from psoup.answers.replicas.view import View

__all__ = ["Answer", "AnswerMaker", "ChosenRows", "Plan", "Question", "Replica", "View"]
