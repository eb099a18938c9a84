"""Words and wordings of the neutral questions; training sees many, so that the rule is learnt and not the wording."""

from __future__ import annotations

from bench.demo_model.phantom.text import Wordings

COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "grey", "pink", "orange")
SIZES = ("small", "big", "long", "short", "round", "flat", "heavy", "light")
OBJECTS = Wordings(
    (
        "box", "cup", "bag", "hat", "ball", "chair", "book", "lamp", "coat", "door", "plate", "spoon", "bottle", "kite",
        "table", "bed", "boat", "car", "bike", "cart", "stone", "stick", "leaf", "flower", "ring", "rope", "shoe",
        "sock", "scarf", "shirt", "dress", "belt", "drum", "bell", "clock", "key", "knife", "fork", "bowl", "pot",
        "pan", "jar", "towel", "pillow", "blanket", "mat", "desk", "shelf", "broom", "brush", "bucket", "toy", "doll",
        "balloon", "flag", "tent", "wheel", "fence", "gate", "letter", "card", "coin", "feather", "shell", "brick",
    ),
    ("basket", "pencil", "carpet", "ladder"),
)  # fmt: skip
COUNTED = Wordings(
    (
        "apples", "books", "coins", "eggs", "cups", "balls", "shells", "stones", "cards", "flowers",
        "oranges", "lemons", "plums", "nuts", "onions", "potatoes", "carrots", "cakes", "sweets", "cookies", "spoons",
        "forks", "plates", "bowls", "pens", "keys", "letters", "stamps", "tickets", "sticks", "leaves", "feathers",
        "marbles", "toys", "dolls", "rings", "bags", "hats", "socks", "bottles", "boxes", "pictures", "beads", "nails",
        "bricks", "jars", "fish", "berries",
    ),
    ("buttons", "pears", "candles"),
)  # fmt: skip
PEOPLE = Wordings(
    (
        "baker", "farmer", "driver", "teacher", "doctor", "singer", "painter", "sailor", "cook", "gardener", "clerk",
        "nurse", "judge", "guard", "pilot", "lawyer", "manager", "cleaner", "plumber", "soldier", "dancer", "writer",
        "builder", "fisherman", "butcher", "student", "neighbour", "waiter", "porter", "player", "runner", "trainer",
        "speaker", "reporter", "engineer", "mechanic", "scientist", "cashier", "librarian", "shepherd", "miner",
        "captain", "potter", "banker", "dentist", "actor",
    ),
    ("tailor", "hunter", "carpenter"),
)  # fmt: skip
DEEDS = Wordings(
    (
        "opened the door", "carried the bag", "washed the floor", "fed the dog", "made the soup", "locked the gate",
        "found the key", "called the shop", "fixed the roof", "cut the grass", "read the letter", "closed the window",
        "baked the bread", "milked the cow", "watered the flowers", "swept the yard", "moved the table",
        "rang the bell", "drove the bus", "picked the apples", "packed the boxes", "sold the car", "bought the milk",
        "cooked the rice", "wrote the note", "paid the bill", "lost the money", "broke the cup", "hid the map",
        "filled the bucket", "planted the tree", "rode the horse", "caught the fish", "folded the shirts",
        "played the drum", "sang the song", "told the story", "took the photo", "held the rope", "built the shed",
        "pushed the cart", "pulled the rope", "dropped the plate", "counted the coins", "sent the parcel",
        "chased the cat", "mended the net", "won the game", "rented the room", "ate the cake", "wore the hat",
    ),
    ("cleaned the boat", "painted the wall", "lit the fire"),
)  # fmt: skip
MORE = Wordings(
    (
        "{name} has {first} {things}. A {who} friend brings {second} more.",
        "A {who} neighbour had {first} {things} and found {second} more.",
        "There are {first} {things} on the table. A {who} guest adds {second} {things}.",
        "{first} {things} were in the kitchen. {name} and a {who} friend came with another {second}.",
        "The {who} student owns {first} {things} and buys {second} new ones.",
        "{name} is {who} and has {first} {things}. Today {name} gets {second} more {things}.",
        "First {name} saw {first} {things}. Next a {who} worker showed {name} {second} others.",
        "A {who} cousin sent {name} {first} {things} on Monday and {second} {things} on Tuesday.",
        "At noon a {who} customer bought {first} {things}. An hour later the customer took {second} as well.",
        "On the shelf stood {first} {things}. {name}, a {who} pupil, placed {second} beside them.",
        "{name} counted {first} {things} at home. The {who} aunt of a friend gave {name} {second}.",
        "Somebody {who} collected {first} {things}, and {name} collected {second} {things}.",
        "Yesterday {name} bought {first} {things}. Today {name}, who is {who}, buys {second}.",
    ),
    (
        "A {who} child put {first} {things} in a box and later {second} more.",
        "In the morning there were {first} {things}. Then {name}, who is {who}, brought {second}.",
    ),
    (
        "{name} kept {first} {things} in a drawer. A {who} visitor left {second} more there.",
        "A {who} boss ordered {first} {things} and then {second} more.",
        "There were {first} {things} in the car. At the shop {name} and a {who} guest bought {second} more.",
    ),
)
FEWER = Wordings(
    (
        "{name} has {first} {things}. A {who} friend takes {second} of them.",
        "A {who} neighbour had {first} {things} and lost {second}.",
        "There are {first} {things} on the table. A {who} guest takes away {second} {things}.",
        "{first} {things} were in the kitchen. {name} and a {who} friend ate or threw away {second}.",
        "The {who} student owns {first} {things} and sells {second} of them.",
        "{name} is {who} and has {first} {things}. Today {name} gives {second} {things} to the school.",
        "First {name} saw {first} {things}. Next a {who} worker took {second} to the shop.",
        "A {who} cousin sent {name} {first} {things} on Monday, but {second} {things} broke on the way.",
        "At noon a {who} customer bought {first} {things}. An hour later the customer returned {second}.",
        "On the shelf stood {first} {things}. {name}, a {who} pupil, removed {second}.",
        "{name} counted {first} {things} at home. The {who} aunt of a friend borrowed {second}.",
        "Somebody {who} dropped {second} of the {first} {things} that {name} had.",
        "Yesterday {name} bought {first} {things}. Today {name}, who is {who}, sold {second}.",
    ),
    (
        "A {who} child had {first} {things} in a box and gave away {second}.",
        "In the morning there were {first} {things}. Then {name}, who is {who}, used {second}.",
    ),
    (
        "{name} kept {first} {things} in a drawer. A {who} visitor picked up {second} and went.",
        "A {who} boss ordered {first} {things} and sent {second} back.",
        "There were {first} {things} in the car. On the road {name} and a {who} guest lost {second}.",
    ),
)
HOW_MANY = Wordings(
    (
        "How many {things} are there now?",
        "How many {things} are left in all?",
        "How many {things} does that make?",
        "Count the {things}. How many are there in the end?",
        "How many {things} do we have after that?",
        "At the end, how many {things} remain?",
        "Which number tells how many {things} there are?",
        "Give the number of {things} at the end.",
    ),
    ("What is the number of {things} now?",),
    ("How many {things} can be counted now?", "How many {things} are there after all this?"),
)
OWNED = Wordings(
    (
        "A {who} teacher has a {first} {thing} and a {second} {other}.",
        "The {who} neighbour bought a {first} {thing} and a {second} {other}.",
        "{name} sees a {first} {thing} and a {second} {other} next to a {who} guest.",
        "There was a {first} {thing} on the left and a {second} {other} on the right of the {who} student.",
        "{name} has a {first} {thing}. A {who} friend has a {second} {other}.",
        "A {first} {thing} belongs to the {who} cousin, a {second} {other} belongs to {name}.",
        "{name}, who is {who}, looked for a {first} {thing} but found a {second} {other}.",
        "In the shop {name} showed a {first} {thing} to a {who} customer, then a {second} {other}.",
        "The {first} {thing} stood near the {second} {other}, and a {who} traveller looked at both.",
        "Behind the house of {name} lay a {first} {thing}. A {who} worker put a {second} {other} there too.",
        "Somebody {who} lost a {second} {other} and kept a {first} {thing}.",
        "{name} drew a {first} {thing} for a {who} pupil and a {second} {other} for the school.",
        "Once a {who} farmer gave {name} a {first} {thing} in exchange for a {second} {other}.",
    ),
    (
        "A {who} visitor carried a {first} {thing} and a {second} {other}.",
        "In the room of the {who} guest there is a {first} {thing} and a {second} {other}.",
    ),
    (
        "A {who} boss found a {first} {thing} and a {second} {other} in the office.",
        "{name} carried a {first} {thing} up the stairs, and a {who} visitor carried a {second} {other}.",
        "Under the tree lay a {first} {thing}, and beside it the {who} guest saw a {second} {other}.",
    ),
)
ACTED = Wordings(
    (
        "The {who} {thing} {first} and the {other} {second}.",
        "The {thing} {first} while the {who} {other} {second}.",
        "In the morning the {thing} {first}. In the afternoon the {who} {other} {second}.",
        "A {who} guest watched how the {thing} {first} and how the {other} {second}.",
        "First a {who} {thing} {first}. After that a {other} {second}.",
        "While the {thing} {first}, the {other} {second} for a {who} cousin.",
        "The {other} {second} as soon as the {who} {thing} {first}.",
        "On Sunday the {thing} {first}, but the {who} {other} {second}.",
        "Last week the {thing} {first} with a {who} friend, so the {other} {second}.",
        "A {who} customer says that the {thing} {first}. The {other} {second}, says somebody else.",
        "Because the {who} {other} {second}, the {thing} {first}.",
        "The {thing} {first}. The {other} {second}. A {who} pupil helped them both.",
    ),
    ("Yesterday the {who} {thing} {first}, and then the {other} {second}.",),
    (
        "Long before noon the {who} {thing} {first}; in the evening the {other} {second}.",
        "It was cold. The {who} {thing} {first}, and the {other} {second}.",
        "We saw that the {thing} {first} and that the {who} {other} {second}.",
    ),
)
COLOUR_ASKED = Wordings(
    (
        "What colour is the {asked}?",
        "Which colour does the {asked} have?",
        "What is the colour of the {asked}?",
        "Tell me the colour of the {asked}.",
        "The {asked} has which colour?",
    ),
    ("What colour is the {asked}?",),
)
LOOK_ASKED = Wordings(
    (
        "How does the {asked} look?",
        "What is the {asked} like?",
        "What kind of {asked} is it?",
        "Which word describes the {asked}?",
        "Describe the {asked}.",
    ),
    ("How does the {asked} look?",),
)
WHO_ASKED = Wordings(
    (
        "Who {deed}?",
        "Who was it that {deed}?",
        "Which person {deed}?",
        "Which of the two {deed}?",
        "Tell me who {deed}.",
    ),
    ("Who {deed}?",),
)
