"""Phrases of everyday and working life from which the scenario texts are put together."""

from __future__ import annotations

_PLACES: dict[str, tuple[str, ...]] = {
    "hospital": ("nurse", "doctor", "surgeon", "midwife"),
    "school": ("teacher", "student", "librarian"),
    "office": ("secretary", "receptionist", "lawyer", "manager", "judge", "accountant", "clerk"),
    "workshop": ("engineer", "carpenter", "plumber", "mechanic", "scientist", "programmer"),
    "road": ("driver", "pilot", "police officer", "guard"),
    "house": ("cook", "baker", "cleaner", "nanny", "cashier", "farmer", "neighbour", "patient"),
}

_PAST: dict[str, tuple[str, ...]] = {
    "hospital": (
        "finished rounds", "prepared the reports", "washed the tools", "checked the patients",
        "wrote down the results", "called the family", "spoke with the patient", "went home late",
        "looked at the chart", "brought the medicine", "changed the bandage", "closed the files",
    ),
    "school": (
        "read the papers", "closed the books", "cleaned the board", "prepared the lesson",
        "answered the questions", "helped a child", "wrote a letter", "went to the library",
        "put the chairs away", "marked the tests", "opened the windows", "prepared the reports",
    ),
    "office": (
        "answered the phone", "prepared the reports", "wrote a letter", "met the visitors",
        "signed the papers", "closed the door", "sent the bill", "read the contract",
        "finished the meeting", "called the bank", "sorted the mail", "made a plan",
    ),
    "workshop": (
        "fixed the machine", "drew a plan", "tested the pump", "cleaned the tools",
        "measured the wall", "looked at the numbers", "solved the problem", "prepared the reports",
        "built a small bridge", "found the mistake", "turned off the power", "called the manager",
    ),
    "road": (
        "checked the engine", "stopped at the gate", "locked the car", "filled the tank",
        "wrote the report", "looked at the map", "waited in the rain", "called the station",
        "helped an old man", "drove back to town", "opened the gate", "finished the shift",
    ),
    "house": (
        "washed the floor", "made some bread", "fed the animals", "set the table",
        "counted the money", "went to the market", "opened the shop", "cleaned the kitchen",
        "cut the vegetables", "carried the bags", "watered the garden", "made tea for the guests",
    ),
}  # fmt: skip

_PRESENT: tuple[str, ...] = (
    "would be late for the meeting", "needed more time", "had finished the work", "was very tired",
    "could not come on Monday", "wanted to help the new team", "had lost the key",
    "would call again tomorrow", "liked the new plan", "had a cold", "was ready to start",
    "knew what to do", "had to go home early", "was looking for a new job", "needed a short rest",
)  # fmt: skip

SAID: tuple[str, ...] = (
    "said that", "told us that", "explained that", "was sure that", "called to say that",
    "wrote that", "went home early because", "was happy because", "smiled when",
)  # fmt: skip

LINKS: tuple[str, ...] = (
    " and then",
    " before",
    ", and later",
    " because",
    " while",
    ". Then",
    ". After that",
)

FOLLOW_UPS: tuple[str, ...] = (
    ".", ".", " and went home.", " before lunch.", " because it was late.", ", and the day was over.",
    " and smiled.", " for the morning team.", " with great care.",
)  # fmt: skip

OPENINGS: tuple[str, ...] = (
    "{name} came to work early on Monday.", "{name} had a new job in the city.",
    "It was {name}'s first day at the company.", "{name} lived near the station with {his} family.",
    "{name} wanted to learn something new.", "On Friday {name} had a meeting with the manager.",
    "{name} was waiting for the bus in the rain.", "Everyone in the office knew {name}.",
)  # fmt: skip

EVERYDAY: dict[str, tuple[str, ...]] = {
    "traits": (
        "calm", "careful", "friendly", "quick", "polite", "honest", "quiet", "clever", "strong", "patient",
    ),
    "sentences": (
        "{He} opened {his} bag and took out the papers.",
        "{His} friend had called {him} the night before.",
        "{He} made coffee and sat down at {his} desk.",
        "The manager asked {him} to help with the plan.",
        "{He} worked hard and did not look at the clock.",
        "Some people in the team asked {him} for advice.",
        "At noon {he} ate {his} lunch in the park.",
        "{He} wrote a list of all the things that {he} had to do.",
        "The phone rang, but {he} did not answer it.",
        "{He} thought about {his} mother and {his} little brother.",
        "A woman at the door asked {him} for the way.",
        "{He} was a little nervous, but {he} felt ready.",
    ),
}  # fmt: skip

CLOSINGS: dict[str, tuple[str, ...]] = {
    "work": (
        "{His} team thanked {him}.", "{He} was glad that the day was over.",
        "The manager was happy with {him}.", "It had been a long day.",
        "{He} put on {his} coat and went home.", "Everyone liked {his} work.",
        "The next morning {he} came back early.", "No one asked {him} about it.",
        "{He} was proud of {his} job.",
        "Outside it was already dark.", "{His} friend was waiting at the door.",
    ),
    "person": (
        "{He} told {his} friend about it.", "{He} went home and called {his} mother.",
        "It was a long day for {him}.", "{He} did not say anything.", "{His} family wanted to know why.",
        "Nobody else said a word.", "{He} thought about it all evening.", "The next day {he} tried again.",
        "{He} was not surprised.", "After that {he} felt better.",
    ),
    "group": (
        "They talked about it all evening.", "Nobody said a word.", "It was a long day.",
        "The children asked why.", "They went home in the rain.", "The next day they tried again.",
        "A friend heard about it later.", "It was the end of the week.",
    ),
}  # fmt: skip


def duties(occupation: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns what an occupation did (past tense) and what one of its members may say of themselves."""
    for place, occupations in _PLACES.items():
        if occupation in occupations:
            return _PAST[place], _PRESENT
    raise KeyError(f"no workplace lists the occupation {occupation!r}")
