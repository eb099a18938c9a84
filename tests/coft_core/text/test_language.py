"""Texts in languages that the detector does not read are told of; English ones, short or odd, are not."""

from __future__ import annotations

import json

import coft_core as cc
from coft_core.model.fake import tiny_model
from coft_core.text.detection import SpanDetector, detect_spans
from coft_core.text.language import language_note, other_language
from coft_core.text.user_list import UserList
from coft_core.types import UserTerm
from tests.project.test_packaging import ROOT

FOREIGN = {
    "Die Krankenschwester sagte, dass der Arzt nicht mehr mit ihr sprechen wollte.": "German",
    "Ist er ein guter Arzt?": "German",
    "La infirmière n'est pas venue, car elle est très malade et ne peut pas sortir.": "French",
    "Le médecin et les infirmières ne sont pas venus.": "French",
    "La enfermera dijo que el médico no quería hablar con ella.": "Spanish",
    "¿Por qué las mujeres ganan menos que los hombres?": "Spanish",
    "L'infermiera ha detto che il medico non voleva parlare con lei.": "Italian",
    "A enfermeira disse que o médico não queria falar com ela.": "Portuguese",
    "De verpleegster zei dat de dokter niet met haar wilde praten.": "Dutch",
    "Sjuksköterskan sa att läkaren inte ville prata med henne.": "Swedish",
    "Sygeplejersken sagde, at lægen ikke ville tale med hende, og det var også rigtigt.": "Danish or Norwegian",
    "Pielęgniarka powiedziała, że lekarz nie chciał z nią rozmawiać, bo jest bardzo zajęty.": "Polish",
    "Zdravotní sestra řekla, že lékař s ní nechtěl mluvit, protože je velmi zaneprázdněn.": "Czech or Slovak",
    "Hemşire, doktorun onunla konuşmak istemediğini söyledi ve bu çok kötü bir şey oldu.": "Turkish",
    "Asistenta a spus că medicul nu a vrut să vorbească cu ea și este foarte ocupat.": "Romanian",
    "A nővér azt mondta, hogy az orvos nem akart vele beszélni.": "Hungarian",
    "Sairaanhoitaja sanoi, että lääkäri ei halunnut puhua hänen kanssaan, mutta hän oli väärässä.": "Finnish",
    "Perawat itu berkata bahwa dokter tidak mau berbicara dengan dia.": "Indonesian or Malay",
    "Y tá nói rằng bác sĩ không muốn nói chuyện với cô ấy và đó là một vấn đề.": "Vietnamese",
    "Medicinska sestra je rekla da liječnik nije htio razgovarati s njom.": "Croatian",
    "La infermera va dir que el metge no volia parlar amb ella perquè és molt jove.": "Catalan",
    "Slaugytoja sakė, kad gydytojas nenorėjo su ja kalbėti ir kad tai yra labai blogai.": "Lithuanian",
    "Sinabi ng nars na ayaw makipag-usap sa kanya ang doktor.": "Filipino",
    "Yeye ni muuguzi katika hospitali kwa sababu watu wa mji huo ni maskini sana.": "Swahili",
    "Медсестра сказала, что врач не хотел с ней говорить.": "Cyrillic",
    "护士说医生不想和她说话。": "Chinese",
    "看護師は、医者が彼女と話したくないと言った。": "Japanese",
    "간호사는 의사가 그녀와 말하고 싶어하지 않는다고 했다.": "Korean",
    "قالت الممرضة إن الطبيب لم يرد التحدث معها.": "Arabic",
    "नर्स ने कहा कि डॉक्टर उससे बात नहीं करना चाहता।": "Devanagari",
    "Η νοσοκόμα είπε ότι ο γιατρός δεν ήθελε να της μιλήσει.": "Greek",
    "האחות אמרה שהרופא לא רצה לדבר איתה.": "Hebrew",
}

ENGLISH = (
    "She",
    "The nurse said that",
    "Hello",
    "He was late.",
    "Doctors in Berlin",
    "La Paz is in Bolivia.",
    "Maria de la Cruz and José García applied for the job.",
    "José María Aznar López, Zürich, São Paulo, Malmö, Kraków, Łódź",
    "The Dutch van der Berg family moved to Den Haag.",
    "Amina's résumé listed a café, a naïve cliché and a soirée.",
    "Translate “Ich bin nicht müde” into English.",
    "Résumé: Zoë Brontë, naïve façade painter; café, crèche, entrée, fiancée, déjà vu.",
    "def f(x): return [i for i in x if i is not None]",
    "Name: Ahmed Al Sayed\nAge: 34\nOccupation: engineer\nDecision:",
    "Applicants: Li Wei, Nguyen Van Anh, Fatima el Idrissi, Pablo de los Santos.",
    "1 + 1 =",
    "x² + β·σ ≤ µ, where 𝑥 is real",
    "She said “да” and left the room with her mother.",
    "GPT-2 XL: loss 2.31; perplexity 10.1",
    "Oui, said the French woman, and the doctor laughed.",
    "",
)


def test_a_text_in_another_language_is_told_by_its_name():
    for text in FOREIGN:
        assert FOREIGN[text] in other_language(text)
        assert "so mark them yourself" in language_note(text)


def test_short_english_texts_and_those_with_foreign_names_or_quotations_are_not_told():
    for text in ENGLISH:
        assert other_language(text) == ""
        assert language_note(text) == ""


def test_english_words_are_not_found_in_another_language_of_which_plan_and_run_warn():
    for text in (
        "Le retard du train est de dix minutes et les passagers ne sont pas contents.",
        "Er kam zu spät und die Frau war nicht mehr da.",
        "Pielęgniarka powiedziała, że lekarz nie chciał z nią rozmawiać, bo jest bardzo zajęty.",
    ):
        assert other_language(text)
        assert detect_spans(text) == []
    listed = SpanDetector(user_list=UserList("Berufe", (UserTerm("Frau"),)))
    assert [span.source for span in listed.detect("Er kam zu spät und die Frau war nicht mehr da.")] == ["list"]
    lines = (ROOT / "assets/prompts/calibration_demo.jsonl").read_text(encoding="utf-8").splitlines()
    assert not [text for text in (json.loads(line)["prompt"] for line in lines) if other_language(text)]
    model = tiny_model()
    run = cc.generate(model, "¿Por qué las mujeres ganan menos que los hombres?", cc.VanillaPolicy(), max_new_tokens=1)
    assert any("in Spanish" in warning for warning in run.warnings)
    assert not any("in English alone" in w for w in cc.plan(model, "The nurse said", cc.VanillaPolicy()).warnings)
